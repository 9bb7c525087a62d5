"""The words of the domain as frozen data."""
