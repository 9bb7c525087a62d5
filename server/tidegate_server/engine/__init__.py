"""The engine process: one classic PySpark driver behind an Arrow Flight server."""
