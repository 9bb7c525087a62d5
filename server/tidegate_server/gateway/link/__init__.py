"""Where gateway and engine meet."""
