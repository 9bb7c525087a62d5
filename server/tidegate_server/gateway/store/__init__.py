"""The relational database for catalog, schedules and history."""
