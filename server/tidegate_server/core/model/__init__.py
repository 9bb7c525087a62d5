"""Frozen data types of the domain."""
