"""Reasons for how refreshes were run, planned or skipped: stable codes with their meaning.

``docs/reasons.md`` is generated from this table.
"""

from __future__ import annotations

from enum import Enum

from tidegate_server.core.model.open_enum import OpenEnum


class ReasonGroup(Enum):
    """Groups of reasons; the values are documentation headings."""

    UNCHANGED = "Nothing to do"
    FULL = "Full refreshes"
    PARTIAL = "Parts of a table"
    INCREMENTAL = "Incremental refreshes"
    COST = "Incremental refreshes that do not pay"
    QUERY = "Queries without an incremental refresh"
    DATA = "Data and sources without an incremental refresh"
    FAILED = "Incremental refreshes that failed"
    RUN = "Runs that were skipped, canceled or closed"
    WAITING = "Decisions that EXPLAIN cannot foresee"


class Reason(OpenEnum):
    """A reason code of histories, EXPLAIN and commits.

    Codes never change their meaning. ``meaning`` is the default text; a run with details, such as
    the name of a table, has its own text.
    """

    group: ReasonGroup
    meaning: str
    advice: str

    def __new__(cls, code: str, group: ReasonGroup, meaning: str, advice: str = "") -> Reason:
        """Create a member with the code as value."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.group, member.meaning, member.advice = group, meaning, advice
        return member

    # ---- nothing to do ---------------------------------------------------------------------

    SOURCES_UNCHANGED = (
        "SOURCES_UNCHANGED",
        ReasonGroup.UNCHANGED,
        "no source has a newer version than the last refresh read",
    )
    NOTHING_ARRIVED = (
        "NOTHING_ARRIVED",
        ReasonGroup.UNCHANGED,
        "nothing has arrived since the last refresh",
    )

    # ---- full refreshes --------------------------------------------------------------------

    FIRST_REFRESH = (
        "FIRST_REFRESH",
        ReasonGroup.FULL,
        "the table has not been refreshed before",
    )
    FORCED = (
        "FORCED",
        ReasonGroup.FULL,
        "a full refresh was asked for",
    )
    POLICY_FULL = (
        "POLICY_FULL",
        ReasonGroup.FULL,
        "the policy is FULL",
    )
    DEFINITION_CHANGED = (
        "DEFINITION_CHANGED",
        ReasonGroup.FULL,
        "the query changed since the last refresh, or a view, function or column it uses",
    )
    FROM_BEGINNING = (
        "FROM_BEGINNING",
        ReasonGroup.FULL,
        "the pipeline was told to start from the beginning",
    )
    PARTIAL_BEFORE = (
        "PARTIAL_BEFORE",
        ReasonGroup.FULL,
        "only some rows or partitions were refreshed last",
    )
    FOREIGN_COMMIT = (
        "FOREIGN_COMMIT",
        ReasonGroup.FULL,
        "a version of the table was not written by a refresh",
        "Change the sources or the query instead of the table.",
    )
    SOURCES_CHANGED = (
        "SOURCES_CHANGED",
        ReasonGroup.FULL,
        "sources have newer versions than the last refresh read",
    )
    SOURCE_WITHOUT_VERSIONS = (
        "SOURCE_WITHOUT_VERSIONS",
        ReasonGroup.FULL,
        (
            "files of a [source without "
            "versions](incremental-refresh.md#sources-without-versions) changed, or its changes "
            "cannot be detected"
        ),
        "Store the source as a Delta table.",
    )
    SOURCES_REPLACED = (
        "SOURCES_REPLACED",
        ReasonGroup.FULL,
        (
            "a source is another table or has another history. Each commit records the commits of "
            "its sources; a table restored from a backup and then written to has other commits "
            "with the same version numbers"
        ),
    )
    UNSTABLE_QUERY = (
        "UNSTABLE_QUERY",
        ReasonGroup.FULL,
        "the query reads the time or random values",
        "Leave the function out, or apply it when the table is read.",
    )

    # ---- parts of a table ------------------------------------------------------------------

    PARTITIONS_REQUESTED = (
        "PARTITIONS_REQUESTED",
        ReasonGroup.PARTIAL,
        "replaces the requested partitions",
    )
    ROWS_REQUESTED = (
        "ROWS_REQUESTED",
        ReasonGroup.PARTIAL,
        "replaces the rows of a condition",
    )
    BACKFILL_REQUESTED = (
        "BACKFILL_REQUESTED",
        ReasonGroup.PARTIAL,
        "copies the immutable rows of another table",
    )
    ROLLBACK_REQUESTED = (
        "ROLLBACK_REQUESTED",
        ReasonGroup.PARTIAL,
        "restores an earlier version",
    )
    PUBLISH_REQUESTED = (
        "PUBLISH_REQUESTED",
        ReasonGroup.PARTIAL,
        "serves a version that was held",
    )

    # ---- incremental refreshes -------------------------------------------------------------

    ROWS_APPENDED = (
        "ROWS_APPENDED",
        ReasonGroup.INCREMENTAL,
        "adds the rows that follow from rows added to the sources",
    )
    ROWS_CHANGED = (
        "ROWS_CHANGED",
        ReasonGroup.INCREMENTAL,
        "applies the query to the changed rows",
    )
    KEYS_AFFECTED = (
        "KEYS_AFFECTED",
        ReasonGroup.INCREMENTAL,
        "recomputes the rows of the keys that the change affects",
    )
    GROUPS_COMBINED = (
        "GROUPS_COMBINED",
        ReasonGroup.INCREMENTAL,
        "combines the stored groups with the change",
    )
    SOURCES_REREAD = (
        "SOURCES_REREAD",
        ReasonGroup.INCREMENTAL,
        (
            "computes parts of the query at the versions of the last refresh and at the new ones, "
            "and applies the difference: there are no keys by which to find the affected rows"
        ),
    )
    STREAM = (
        "STREAM",
        ReasonGroup.INCREMENTAL,
        "adds what has arrived in a stream since the last refresh",
    )

    # ---- cost ------------------------------------------------------------------------------

    INCREMENTAL_CHOSEN = (
        "INCREMENTAL_CHOSEN",
        ReasonGroup.COST,
        "rejects the full refresh, because the incremental one was expected to be faster",
    )
    CHANGE_TOO_LARGE = (
        "CHANGE_TOO_LARGE",
        ReasonGroup.COST,
        "a large part of the sources changed",
    )
    TOO_MANY_KEYS = (
        "TOO_MANY_KEYS",
        ReasonGroup.COST,
        "the change affects a large part of the keys",
    )
    FULL_IS_CHEAPER = (
        "FULL_IS_CHEAPER",
        ReasonGroup.COST,
        "a full refresh was expected to be faster",
        "`REFRESH_MODE = INCREMENTAL` refreshes incrementally regardless of the cost.",
    )
    FAILED_BEFORE = (
        "FAILED_BEFORE",
        ReasonGroup.COST,
        (
            "the last incremental refresh failed. The next one is tried after 1 full refresh, and "
            "if that fails, too, after 3, then after every 7"
        ),
        "Find the failure in the history: its reason is `INCREMENTAL_FAILED` or `TABLE_DIFFERS`.",
    )

    # ---- queries ---------------------------------------------------------------------------

    AGGREGATE_WITHOUT_KEYS = (
        "AGGREGATE_WITHOUT_KEYS",
        ReasonGroup.QUERY,
        (
            "an aggregate without GROUP BY that the last totals no longer determine, so that a "
            "full refresh records new ones; or one over columns that cannot be keys"
        ),
    )
    AGGREGATE_NOT_TOP_NODE = (
        "AGGREGATE_NOT_TOP_NODE",
        ReasonGroup.QUERY,
        (
            "a floating-point sum, an `avg` of integers whose sum exceeds 2<sup>52</sup>, or a "
            "`try_sum` that may overflow, whose keys are not columns of the table"
        ),
        "Select the GROUP BY columns, or sum a DECIMAL.",
    )
    WINDOW_WITHOUT_PARTITION_BY = (
        "WINDOW_WITHOUT_PARTITION_BY",
        ReasonGroup.QUERY,
        (
            "a window without PARTITION BY that the last totals no longer determine, so that a "
            "full refresh records new ones; or one whose PARTITION BY columns cannot be keys"
        ),
    )
    ORDER_NOT_UNIQUE = (
        "ORDER_NOT_UNIQUE",
        ReasonGroup.QUERY,
        (
            "[differing rows tie](incremental-refresh.md#tied-rows) in a query with `row_number`, "
            "`first` or similar, or at the LIMIT; or the result depends on the order of all rows, "
            "as with an unsorted `collect_list`"
        ),
        "Order by columns that are unique.",
    )
    JOIN_WITHOUT_EQUALITY = (
        "JOIN_WITHOUT_EQUALITY",
        ReasonGroup.QUERY,
        "with the rule WHOLE off, FULL JOIN that equates no columns",
        "Equate columns of both tables, or switch the rule WHOLE on.",
    )
    SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE = (
        "SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE",
        ReasonGroup.QUERY,
        (
            "a source of an uncorrelated scalar subquery changed that is used elsewhere than in "
            "projections, filters, aggregates and joins, or with the rule WHOLE off"
        ),
    )
    SUBQUERY_PREDICATE_NOT_INCREMENTALIZABLE = (
        "SUBQUERY_PREDICATE_NOT_INCREMENTALIZABLE",
        ReasonGroup.QUERY,
        (
            "an expression uses [IN with a subquery](incremental-refresh.md#in-with-a-subquery) "
            "that may be NULL"
        ),
        "Compare values that cannot be NULL, or use IN as a condition of its own.",
    )
    EXPRESSION_NOT_DETERMINISTIC = (
        "EXPRESSION_NOT_DETERMINISTIC",
        ReasonGroup.QUERY,
        "an expression gives another value at each refresh",
    )
    UDF_NOT_DETERMINISTIC = (
        "UDF_NOT_DETERMINISTIC",
        ReasonGroup.QUERY,
        "a user-defined function may give other values next time",
    )
    OPERATOR_NOT_INCREMENTALIZABLE = (
        "OPERATOR_NOT_INCREMENTALIZABLE",
        ReasonGroup.QUERY,
        "no rule applies, for example to LIMIT without ORDER BY",
    )
    TYPE_NOT_COMPARABLE = (
        "TYPE_NOT_COMPARABLE",
        ReasonGroup.QUERY,
        "rows with a type such as VARIANT, or with a collation, cannot be compared",
    )
    TIME_TRAVEL = (
        "TIME_TRAVEL",
        ReasonGroup.QUERY,
        "the query itself selects a version of a source",
    )
    RULE_DISABLED = (
        "RULE_DISABLED",
        ReasonGroup.QUERY,
        "a required rule is disabled",
    )

    # ---- data ------------------------------------------------------------------------------

    SOURCE_CHANGE_UNKNOWN = (
        "SOURCE_CHANGE_UNKNOWN",
        ReasonGroup.DATA,
        "the change of a source cannot be read",
        "Keep the history of the source for longer than the time between refreshes.",
    )
    TOTALS_NOT_RECORDED = (
        "TOTALS_NOT_RECORDED",
        ReasonGroup.DATA,
        (
            "the last refresh recorded no [totals](incremental-refresh.md#how-it-works), no "
            "boundary of the top rows or no check for [ties](incremental-refresh.md#tied-rows): "
            "it was too fast for recording to pay off, or the policy was FULL"
        ),
    )
    ROWS_LEFT_LIMIT = (
        "ROWS_LEFT_LIMIT",
        ReasonGroup.DATA,
        "more rows left the LIMIT than were recorded to move up",
    )
    IMMUTABLE_REGION_MOVES = (
        "IMMUTABLE_REGION_MOVES",
        ReasonGroup.DATA,
        "[rows become immutable](immutable-rows.md#the-condition) as time passes",
    )

    # ---- failures --------------------------------------------------------------------------

    TABLE_DIFFERS = (
        "TABLE_DIFFERS",
        ReasonGroup.FAILED,
        "the table did not hold the rows that were to be removed, so that it was refreshed fully",
    )
    INCREMENTAL_FAILED = (
        "INCREMENTAL_FAILED",
        ReasonGroup.FAILED,
        "Spark failed, so that the table was refreshed fully",
    )

    # ---- runs ------------------------------------------------------------------------------

    PREVIOUS_RUNNING = (
        "PREVIOUS_RUNNING",
        ReasonGroup.RUN,
        "the table's previous refresh was still running",
    )
    MISFIRED = (
        "MISFIRED",
        ReasonGroup.RUN,
        "scheduled refreshes were missed while no server ran",
    )
    TABLE_SUSPENDED = (
        "TABLE_SUSPENDED",
        ReasonGroup.RUN,
        "the table is suspended",
    )
    TABLE_DROPPED = (
        "TABLE_DROPPED",
        ReasonGroup.RUN,
        "the table was dropped",
    )
    VERSION_HELD = (
        "VERSION_HELD",
        ReasonGroup.RUN,
        "an assertion holds a version of the table",
        "Publish or discard the held version.",
    )
    UPSTREAM_FAILED = (
        "UPSTREAM_FAILED",
        ReasonGroup.RUN,
        "a table that this one reads was not refreshed",
    )
    UPSTREAM_SUSPENDED = (
        "UPSTREAM_SUSPENDED",
        ReasonGroup.RUN,
        "a table that this one reads is suspended, so that its rows may be old",
    )
    WAVE_ENDED = (
        "WAVE_ENDED",
        ReasonGroup.RUN,
        "the wave it belongs to ended before it began",
    )
    CANCELED = (
        "CANCELED",
        ReasonGroup.RUN,
        "the run was canceled",
    )
    SERVER_STOPPED = (
        "SERVER_STOPPED",
        ReasonGroup.RUN,
        "the server was stopped",
    )
    BACKFILL_STOPPED = (
        "BACKFILL_STOPPED",
        ReasonGroup.RUN,
        "an earlier partition of the backfill failed",
    )
    LEASE_LOST = (
        "LEASE_LOST",
        ReasonGroup.RUN,
        "another server took the lease over",
    )
    RECOVERED = (
        "RECOVERED",
        ReasonGroup.RUN,
        "read from the table's own last commit",
    )
    SUSPENDED_DUE_TO_ERRORS = (
        "SUSPENDED_DUE_TO_ERRORS",
        ReasonGroup.RUN,
        "several refreshes failed in a row, so that the table was suspended",
        "Remove the cause, then RESUME.",
    )
    REBUILT = (
        "REBUILT",
        ReasonGroup.RUN,
        "the catalog entry was rebuilt from the table's properties, and the table is suspended",
        "RESUME once it is certain that no other server refreshes the table.",
    )

    # ---- pending decisions -----------------------------------------------------------------

    AFTER_UPSTREAM = (
        "AFTER_UPSTREAM",
        ReasonGroup.WAITING,
        "decided when a table that this one reads is refreshed",
    )
