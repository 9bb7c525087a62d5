"""Statements on catalogs."""
