"""Authentication and impersonation."""
