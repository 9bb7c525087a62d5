"""Analyzes and evolves definitions of materialized tables."""
