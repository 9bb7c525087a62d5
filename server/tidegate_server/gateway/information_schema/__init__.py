"""The system tables."""
