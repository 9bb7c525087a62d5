"""Prints where the dbt package is."""

from tidegate.dbt import DIRECTORY

print(DIRECTORY)
