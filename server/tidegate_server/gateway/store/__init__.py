"""The relational database behind catalog, schedules and history."""
