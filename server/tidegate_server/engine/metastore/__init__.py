"""Reads the metastore for the gateway."""
