"""Analyzes queries: their references, sources, plans and lineage."""
