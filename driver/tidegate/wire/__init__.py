"""What client and server must agree on, down to the bytes."""
