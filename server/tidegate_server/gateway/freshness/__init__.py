"""Actual and required freshness of tables; pure decisions of the gateway."""
