"""Catalogs written in Python: what they implement, how they are found and checked."""
