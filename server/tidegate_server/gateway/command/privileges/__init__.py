"""Statements on privileges, roles and owners."""
