"""Completes or undoes work that an earlier process left unfinished."""
