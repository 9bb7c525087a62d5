"""The optional features of SQL that the dialect has, for SQLAlchemy's compliance suite."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_OPEN: Any = property(lambda _: exclusions.open())  # type: ignore[no-untyped-call]
_CLOSED: Any = property(lambda _: exclusions.closed())  # type: ignore[no-untyped-call]


class Requirements(SuiteRequirements):
    """Open where Spark has it, closed where it has not."""

    create_table = _OPEN
    views = _OPEN
    schemas = _OPEN
    comment_reflection = _OPEN
    ctes = _OPEN
    window_functions = _OPEN
    intersect = _OPEN
    except_ = _OPEN
    multivalues_inserts = _OPEN
    bound_limit_offset = _OPEN
    offset = _OPEN
    precision_numerics_many_significant_digits = _OPEN
    unicode_ddl = _OPEN
    foreign_keys = _CLOSED
    foreign_key_constraint_reflection = _CLOSED
    self_referential_foreign_keys = _CLOSED
    primary_key_constraint_reflection = _CLOSED
    index_reflection = _CLOSED
    unique_constraint_reflection = _CLOSED
    check_constraint_reflection = _CLOSED
    temp_table_reflection = _CLOSED
    temporary_tables = _CLOSED
    autoincrement_insert = _CLOSED
    sequences = _CLOSED
    savepoints = _CLOSED
    transactions = _CLOSED
    returning = _CLOSED
    implicitly_named_constraints = _CLOSED
    sane_rowcount = _CLOSED
