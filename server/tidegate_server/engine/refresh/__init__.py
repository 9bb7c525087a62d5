"""Carries out refreshes and verification."""
