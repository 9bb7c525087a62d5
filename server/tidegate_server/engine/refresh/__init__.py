"""Runs refreshes and verifications."""
