"""Turns statements into checked definitions and applies them."""
