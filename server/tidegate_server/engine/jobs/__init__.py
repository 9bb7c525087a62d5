"""Jobs that run in this engine."""
