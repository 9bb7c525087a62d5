"""The system tables of ``information_schema``."""
