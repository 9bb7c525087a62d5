"""Statements on jobs and statement sets."""
