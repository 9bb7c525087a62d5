"""The optional features of SQL that the dialect has, for SQLAlchemy's compliance suite."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_OPEN: Any = property(lambda _: exclusions.open())  # type: ignore[no-untyped-call]


def _closed(reason: str) -> Any:
    """Return a requirement that is not met, and why."""
    untyped: Any = exclusions
    return property(lambda _: untyped.skip_if(untyped.BooleanPredicate(True, reason)))


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
    comment_reflection = _OPEN
    comment_reflection_full_unicode = _OPEN

    # What is closed says why, and the suite prints the reason for each test that it skips.

    unicode_ddl = _closed("the metastore takes letters, digits and underscores in names of tables")
    percent_schema_names = unicode_ddl
    unusual_column_name_characters = _closed(
        "Delta takes blanks and brackets in names of columns only with column mapping"
    )
    denormalized_names = _closed("names are case-insensitive and stored in lower case")

    # Types.
    time = _closed("Spark stores no TIME")
    time_implicit_bound = time
    time_microseconds = time
    time_timezone = time
    datetime_timezone = _closed("a TIMESTAMP is a moment; it stores no time zone")
    datetime_timezone_historic = datetime_timezone
    datetime_interval = _closed("Interval is stored as a TIMESTAMP since 1970, for lack of a type")
    json_type = _closed("JSON is stored as STRING, without operators for its parts")
    json_array_indexes = json_type
    json_deserializer_binary = json_type
    legacy_unconditional_json_extract = json_type
    uuid_data_type = _closed("Spark has no UUID type; Uuid is stored as STRING")
    array_type = _closed("an ARRAY has the dialect's own type, not SQLAlchemy's generic one")
    float_or_double_precision_behaves_generically = _closed("FLOAT and DOUBLE take no precision")

    # Keys, constraints, indexes, defaults.
    foreign_keys = _closed("tables enforce no keys, constraints or indexes")
    foreign_key_ddl = _OPEN
    foreign_key_constraint_reflection = foreign_keys
    foreign_key_constraint_name_reflection = foreign_keys
    foreign_key_constraint_option_reflection_ondelete = foreign_keys
    foreign_key_constraint_option_reflection_onupdate = foreign_keys
    fk_constraint_option_reflection_ondelete_noaction = foreign_keys
    fk_constraint_option_reflection_ondelete_restrict = foreign_keys
    fk_constraint_option_reflection_onupdate_restrict = foreign_keys
    foreign_keys_reflect_as_index = foreign_keys
    cross_schema_fk_reflection = foreign_keys
    repeated_column_foreign_keys = foreign_keys
    repeated_remote_col_foreign_keys = foreign_keys
    self_referential_foreign_keys = foreign_keys
    deferrable_fks = foreign_keys
    on_update_cascade = foreign_keys
    on_update_or_deferrable_fks = foreign_keys
    non_updating_cascade = foreign_keys
    recursive_fk_cascade = foreign_keys
    primary_key_constraint_reflection = foreign_keys
    reflects_pk_names = foreign_keys
    duplicate_key_raises_integrity_error = foreign_keys
    index_reflection = foreign_keys
    index_ddl_if_exists = foreign_keys
    index_reflects_included_columns = foreign_keys
    indexes_check_column_order = foreign_keys
    indexes_with_ascdesc = foreign_keys
    indexes_with_expressions = foreign_keys
    reflect_indexes_with_ascdesc = foreign_keys
    reflect_indexes_with_ascdesc_as_expression = foreign_keys
    reflect_indexes_with_expressions = foreign_keys
    unique_constraint_reflection = foreign_keys
    unique_constraints_reflect_as_index = foreign_keys
    unique_index_reflect_as_unique_constraints = foreign_keys
    check_constraint_reflection = foreign_keys
    inline_check_constraint_reflection = foreign_keys
    constraint_comment_reflection = foreign_keys
    named_constraints = foreign_keys
    implicitly_named_constraints = foreign_keys
    computed_columns = _closed("CREATE TABLE of the dialect writes no generated columns")
    computed_columns_default_persisted = computed_columns
    computed_columns_reflect_persisted = computed_columns
    computed_columns_stored = computed_columns
    computed_columns_virtual = computed_columns
    server_defaults = _closed("Delta takes defaults only with a table feature that is off")
    expression_server_defaults = server_defaults
    identity_columns = _closed("CREATE TABLE of the dialect writes no identity columns")
    identity_columns_standard = identity_columns
    autoincrement_insert = _closed("no column counts by itself")
    autoincrement_without_sequence = autoincrement_insert
    empty_inserts = autoincrement_insert
    empty_inserts_executemany = autoincrement_insert
    implements_get_lastrowid = autoincrement_insert
    dbapi_lastrowid = autoincrement_insert
    emulated_lastrowid = autoincrement_insert
    emulated_lastrowid_even_with_sequences = autoincrement_insert
    supports_lastrowid = autoincrement_insert
    sequences = _closed("Spark has no sequences")
    sequences_optional = sequences

    # Tables and views.
    temporary_tables = _closed("there are temporary views, but no temporary tables")
    temp_table_reflection = temporary_tables
    temp_table_comment_reflection = temporary_tables
    temp_table_names = temporary_tables
    temp_table_reflect_indexes = temporary_tables
    has_temp_table = temporary_tables
    create_temp_table_as = temporary_tables
    temporary_views = _closed("the suite makes temporary views of temporary tables only")
    materialized_views = _closed("materialized tables are made by a statement of their own")
    materialized_views_reflect_pk = materialized_views
    reflect_table_options = _closed("the metadata calls show no options of plain tables")
    reflect_tables_no_columns = _closed("a table needs a column")
    column_collation_reflection = _closed("the metadata calls show no collations")
    default_schema_name_switch = _closed("the suite would have to be told how to switch it")
    implicit_default_schema = _closed("only PostgreSQL has a schema that is implied in this sense")

    # Statements.
    returning = _closed("no statement returns the rows that it writes")
    insert_returning = returning
    insert_executemany_returning = returning
    insertmanyvalues = returning
    update_returning = returning
    delete_returning = returning
    sane_rowcount_w_returning = returning
    update_from = _closed("UPDATE and DELETE name one table; MERGE joins others")
    delete_from = update_from
    ctes_on_dml = _closed("WITH precedes only queries")
    ctes_with_update_delete = ctes_on_dml
    fetch_first = _closed("the grammar has LIMIT, not FETCH FIRST")
    fetch_expression = fetch_first
    fetch_no_order_by = fetch_first
    fetch_offset_with_options = fetch_first
    fetch_percent = fetch_first
    fetch_ties = fetch_first
    supports_distinct_on = _closed("the grammar has no DISTINCT ON")
    aggregate_order_by = _closed("aggregates take an order only in WITHIN GROUP")
    window_range_non_numeric = _closed("a timedelta is no literal of the dialect")
    order_by_collation = _closed("the suite knows no collation that it could name here")
    sane_rowcount = _closed("formats other than Delta do not count changed rows")
    sane_multi_rowcount = sane_rowcount
    server_side_cursors = _closed("every result is fetched page by page; there is no other kind")

    # Connections.
    transactions = _closed("every statement is its own transaction")
    savepoints = transactions
    two_phase_transactions = transactions
    isolation_level = transactions
    autocommit = _closed("AUTOCOMMIT is the only isolation level, which cannot be left")
    skip_autocommit_rollback = autocommit
    independent_readonly_connections = _OPEN
    async_dialect = _closed("the suite runs the dialect that blocks")
