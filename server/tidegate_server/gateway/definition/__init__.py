"""From a statement to a checked definition that is in place."""
