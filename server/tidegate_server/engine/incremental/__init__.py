"""Incremental refresh: what changed, which rows of the table that changes, one commit."""
