"""Chooses how a table is refreshed; pure."""
