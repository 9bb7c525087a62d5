"""Stores the results of statements until the gateway fetches them."""
