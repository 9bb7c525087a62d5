"""Names to definitions of materialized tables."""
