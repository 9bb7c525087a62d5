"""The audit log: who did what, on which objects, and whether it was allowed."""
