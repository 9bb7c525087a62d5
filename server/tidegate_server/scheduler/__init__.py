"""When refreshes run."""
