"""What a user may do and see."""
