"""The gate: what the plans of users may contain and access."""
