"""Scheduling of refreshes."""
