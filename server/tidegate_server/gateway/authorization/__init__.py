"""Authorization: what a user may do and see."""
