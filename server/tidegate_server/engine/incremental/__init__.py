"""Incremental refresh: source changes, the table's changed rows, one commit."""
