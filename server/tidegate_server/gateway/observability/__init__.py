"""What operators see of a gateway: metrics and logs."""
