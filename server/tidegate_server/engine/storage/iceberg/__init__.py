"""Iceberg tables of catalogs, as versioned sources."""
