"""A dbt package: the materialization ``materialized_table`` for dbt-spark.

``python -m tidegate.dbt`` prints the directory to name in ``packages.yml`` as ``local``.
"""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parent
"""The package for ``packages.yml``."""
