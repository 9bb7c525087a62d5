"""The gateway's link to the engine process."""
