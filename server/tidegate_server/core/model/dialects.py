"""The SQL dialects of statements."""

from __future__ import annotations

from enum import Enum
from typing import Final

DIALECT_OPTION: Final = "sql.dialect"


class SqlDialect(Enum):
    """Whose SQL a statement is; the values are those of ``sql.dialect``."""

    SPARK = "spark"
    FLINK = "flink"


def read_dialect(value: str | None) -> SqlDialect:
    """Return the dialect of an option's value; Spark's for None.

    :raises ValueError: for any other value.
    """
    return SqlDialect.SPARK if value is None else SqlDialect(value.strip().lower())
