"""Decisions about refreshes: pure, without Spark and without the store."""
