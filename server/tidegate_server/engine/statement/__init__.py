"""Runs Spark SQL statements, and rejects those that would damage materialized tables."""
