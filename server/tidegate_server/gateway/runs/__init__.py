"""Refresh and maintenance runs of the gateway."""
