"""Completes or undoes what an earlier process left unfinished."""
