"""Sessions of clients and the operations that run in them."""
