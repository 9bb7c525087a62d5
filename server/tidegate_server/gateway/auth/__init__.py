"""Who a client is, and as whom it may act."""
