"""Tidegate's server.

``gateway`` and ``engine`` are its two processes; ``core`` is what both use, their messages to each
other among it. ARCHITECTURE.md describes them; the import contracts in pyproject.toml list their
layers.
"""
