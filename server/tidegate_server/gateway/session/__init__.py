"""Sessions, what is asked in them, and the results."""
