"""How fresh tables are and have to be: decisions of the gateway, pure."""
