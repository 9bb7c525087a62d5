"""Tidegate's statements as text and as data."""
