"""Directories of definitions that become the state of a server: ``tidegate plan`` and ``apply``."""
