"""The optional features of SQL that the dialect has, for SQLAlchemy's compliance suite."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_OPEN: Any = property(lambda _: exclusions.open())  # type: ignore[no-untyped-call]
_CLOSED: Any = property(lambda _: exclusions.closed())  # type: ignore[no-untyped-call]


class Requirements(SuiteRequirements):
    """Open for the features that Spark and Delta have, closed for the others."""

    # Statements.
    create_table = _OPEN
    create_table_as = _OPEN
    create_or_replace_view = _OPEN
    table_ddl_if_exists = _OPEN
    schema_create_delete = _OPEN
    views = _OPEN
    schemas = _OPEN
    ctes = _OPEN
    ctes_with_values = _OPEN
    window_functions = _OPEN
    window_range = _OPEN
    window_range_numeric = _OPEN
    intersect = _OPEN
    except_ = _OPEN
    multivalues_inserts = _OPEN
    bound_limit_offset = _OPEN
    offset = _OPEN
    table_value_constructor = _OPEN
    order_by_label_with_expression = _OPEN
    boolean_col_expressions = _OPEN
    nullsordering = _OPEN

    # Expressions.
    regexp_match = _OPEN
    regexp_replace = _OPEN
    tuple_in = _OPEN
    supports_bitwise_and = _OPEN
    supports_bitwise_or = _OPEN
    supports_bitwise_xor = _OPEN
    supports_bitwise_not = _OPEN
    supports_bitwise_shift = _OPEN
    mod_operator_as_percent_sign = _OPEN

    # Types and names.
    date_historic = _OPEN
    datetime_historic = _OPEN
    datetime_literals = _OPEN
    timestamp_microseconds = _OPEN
    infinity_floats = _OPEN
    precision_numerics_many_significant_digits = _OPEN
    precision_numerics_enotation_small = _OPEN
    precision_numerics_retains_significant_digits = _OPEN
    nvarchar_types = _OPEN
    # Columns take any letters; the metastore's names of tables and schemas do not.
    unicode_ddl = _CLOSED
    # Delta allows no blanks and brackets in column names, unless columns are mapped.
    unusual_column_name_characters = _CLOSED
    comment_reflection = _OPEN
    comment_reflection_full_unicode = _OPEN

    # Spark stores no TIME.
    time = _CLOSED
    time_implicit_bound = _CLOSED
    time_microseconds = _CLOSED

    # Tables enforce no keys, constraints or indexes.
    foreign_keys = _CLOSED
    foreign_key_ddl = _OPEN
    foreign_key_constraint_reflection = _CLOSED
    self_referential_foreign_keys = _CLOSED
    on_update_cascade = _CLOSED
    recursive_fk_cascade = _CLOSED
    primary_key_constraint_reflection = _CLOSED
    index_reflection = _CLOSED
    indexes_with_ascdesc = _CLOSED
    reflect_indexes_with_ascdesc = _CLOSED
    unique_constraint_reflection = _CLOSED
    check_constraint_reflection = _CLOSED
    named_constraints = _CLOSED
    implicitly_named_constraints = _CLOSED
    duplicate_key_raises_integrity_error = _CLOSED
    autoincrement_insert = _CLOSED
    empty_inserts = _CLOSED
    empty_inserts_executemany = _CLOSED
    autoincrement_without_sequence = _CLOSED
    implements_get_lastrowid = _CLOSED
    sequences = _CLOSED

    # There are temporary views, but no temporary tables.
    temp_table_reflection = _CLOSED
    temporary_tables = _CLOSED

    # Every statement is its own transaction.
    savepoints = _CLOSED
    transactions = _CLOSED
    returning = _CLOSED
    sane_rowcount = _CLOSED
    independent_readonly_connections = _OPEN
