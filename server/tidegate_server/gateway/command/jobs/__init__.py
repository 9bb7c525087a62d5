"""Commands on jobs and statement sets."""
