"""The gate: what the plans of users may access."""
