"""Sessions, their operations and results."""
