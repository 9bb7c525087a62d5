"""Paimon tables, read and written with pypaimon, which needs no jar."""
