"""Runs statements of Spark SQL, and refuses some of them."""
