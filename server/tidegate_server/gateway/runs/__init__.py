"""Refreshes and maintenance of tables, as runs of the gateway."""
