"""Table formats that keep the data of materialized tables."""
