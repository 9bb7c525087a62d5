"""Chooses a refresh's strategy; pure."""
