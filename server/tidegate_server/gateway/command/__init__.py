"""What the gateway does for a parsed statement."""
