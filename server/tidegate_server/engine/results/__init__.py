"""Results of statements on their way to the gateway."""
