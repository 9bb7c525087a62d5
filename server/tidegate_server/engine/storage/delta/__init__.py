"""Delta Lake as a table format."""
