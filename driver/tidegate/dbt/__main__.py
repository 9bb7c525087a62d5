"""Prints where the dbt package is."""

import sys

from tidegate.dbt import DIRECTORY

sys.stdout.write(f"{DIRECTORY}\n")
