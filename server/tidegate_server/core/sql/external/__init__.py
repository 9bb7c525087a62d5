"""Statements on external locations and connections."""
