"""What commits of Delta's log say, from their text alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate_server.engine.storage.commit_metadata import last_refresh
from tidegate_server.engine.storage.delta.commits import Commit
from tidegate_server.engine.storage.delta.log import (
    Span,
    column_layout,
    has_change_feed,
    parse_commit,
    vacuum_candidates,
)

STATS = json.dumps({"numRecords": 3})


def text(*actions: dict[str, Any]) -> str:
    """Return a commit file."""
    return "\n".join(json.dumps(action) for action in actions)


def info(operation: str, **metrics: str) -> dict[str, Any]:
    """Return what a commit says of itself."""
    return {"commitInfo": {"operation": operation, "operationMetrics": metrics}}


def add(path: str, *, data: bool = True, stats: str | None = STATS) -> dict[str, Any]:
    """Return an added file."""
    return {"add": {"path": path, "dataChange": data, "stats": stats}}


def remove(path: str, *, data: bool = True) -> dict[str, Any]:
    """Return a removed file."""
    return {"remove": {"path": path, "dataChange": data}}


def span(*commits: str) -> Span:
    """Return a span of commits from version 1 on."""
    parsed = [parse_commit(version, each) for version, each in enumerate(commits, 1)]
    return Span(commits=tuple(parsed))


def test_only_added_files_are_told_by_the_log() -> None:
    optimize = text(info("OPTIMIZE"), remove("a", data=False), add("b", data=False))
    appended = span(text(info("WRITE"), add("a")), optimize)
    assert (appended.only_adds, appended.changes_rows, appended.rows) == (True, True, 3)
    assert not span(optimize).changes_rows
    assert not span(text(info("WRITE"), add("a"), remove("b"))).only_adds
    assert not span(text(info("WRITE"), add("a")), text(info("WRITE"), add("a"))).only_adds
    assert not span(text(info("MERGE"), add("a"), {"cdc": {"path": "c"}})).only_adds


def test_lines_end_where_delta_ends_them() -> None:
    odd = {"add": {"path": "a", "dataChange": True, "stats": "\u2028\u0085\x0b"}}
    actions = (info("WRITE"), odd)
    found = parse_commit(1, "\n".join(json.dumps(a, ensure_ascii=False) for a in actions))
    assert [file["path"] for file in found.added] == ["a"]


@pytest.mark.parametrize(
    ("operation", "metrics", "rows"),
    [
        ("DELETE", {"numDeletedRows": "4", "numCopiedRows": "9"}, 4),
        ("UPDATE", {"numUpdatedRows": "4"}, 8),
        (
            "MERGE",
            {
                "numTargetRowsInserted": "1",
                "numTargetRowsUpdated": "2",
                "numTargetRowsDeleted": "3",
                "numOutputRows": "99",
            },
            8,
        ),
        ("DELETE", {}, None),
        ("WRITE", {"numOutputRows": "5"}, None),
        ("RESTORE", {"numDeletedRows": "1"}, None),
    ],
)
def test_rows_are_counted_by_the_commits_own_metrics(
    operation: str, metrics: dict[str, str], rows: int | None
) -> None:
    assert parse_commit(1, text(info(operation, **metrics), add("a"), remove("b"))).rows == rows


def test_rows_of_replaced_files_are_guessed_by_their_sizes() -> None:
    new = {"add": {"path": "a", "dataChange": True, "size": 100, "stats": '{"numRecords": 10}'}}
    old = {"remove": {"path": "b", "dataChange": True, "size": 300}}
    tidied = {"remove": {"path": "c", "dataChange": False, "size": 900}}
    overwrite = parse_commit(1, text(info("WRITE"), new, old, tidied))
    truncate = parse_commit(2, text(info("TRUNCATE"), old))
    counted = parse_commit(3, text(info("DELETE", numDeletedRows="2"), old))
    assert [c.rows for c in (overwrite, truncate, counted)] == [None, None, 2]
    assert [c.guess for c in (overwrite, truncate, counted)] == [40, None, 2]
    assert Span(commits=(overwrite, counted)).guess == 42
    assert Span(commits=(overwrite, truncate)).guess is None


def test_rows_without_statistics_are_not_known() -> None:
    assert (
        span(text(info("WRITE"), add("a", stats=None)), text(info("WRITE"), add("b"))).rows is None
    )


def test_the_first_removals_tell_whether_vacuum_came_by() -> None:
    commits = span(
        text(info("WRITE"), add("n1")),
        text(info("DELETE"), remove("r1"), remove("r2"), {"cdc": {"path": "c1"}}),
        text(info("DELETE"), remove("r3"), {"cdc": {"path": "c2"}}),
    )
    assert [file["path"] for file in vacuum_candidates(commits, 10)] == ["r1", "r2", "c1"]
    assert [file["path"] for file in vacuum_candidates(commits, 1)] == ["r1", "c1"]


def with_vector(action: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an added or removed file with a deletion vector."""
    ((kind, file),) = action.items()
    return {kind: {**file, "deletionVector": {"storageType": "u", "pathOrInlineDv": name}}}


def test_compaction_leaves_the_rows_that_were_before() -> None:
    compacted = text(info("OPTIMIZE"), remove("r", data=False), add("n", data=False))
    commits = span(compacted, compacted, text(info("DELETE"), remove("n")))
    (first, second, _) = (commit.version for commit in commits.commits)
    assert commits.same_until(first - 1, second + 1) == second
    assert commits.same_until(first - 1, first) == first
    assert [c.version for c in commits.since(second).commits] == [second + 1]
    other = text(info("ADD COLUMNS"), {"metaData": metadata(column("a"))})
    assert span(other, compacted).same_until(first - 1, second) == first - 1


def test_what_came_back_does_not_tell_whether_vacuum_came_by() -> None:
    commits = span(
        text(info("DELETE"), remove("r1")),
        text(info("RESTORE"), add("r1")),
        text(info("DELETE"), remove("r2")),
    )
    assert [file["path"] for file in vacuum_candidates(commits, 10)] == ["r2"]


def test_a_file_whose_deletion_vector_was_replaced_tells_whether_vacuum_came_by() -> None:
    marked = text(info("DELETE"), remove("r"), with_vector(add("r"), "v1"))
    further = text(info("DELETE"), with_vector(remove("r"), "v1"), with_vector(add("r"), "v2"))
    restored = text(info("RESTORE"), with_vector(remove("r"), "v2"), with_vector(add("r"), "v1"))
    assert list(vacuum_candidates(span(marked), 10)) == []
    (found,) = vacuum_candidates(span(marked, further), 10)
    assert found["deletionVector"]["pathOrInlineDv"] == "v1"
    (found,) = vacuum_candidates(span(marked, further, restored), 10)
    assert found["deletionVector"]["pathOrInlineDv"] == "v2"


def metadata(*fields: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return a table's metadata."""
    schema = {"type": "struct", "fields": list(fields)}
    return {"id": "i", "schemaString": json.dumps(schema), "partitionColumns": [], **changed}


def column(name: str, type: object = "string", **metadata: object) -> dict[str, Any]:
    """Return a column of a schema."""
    return {"name": name, "type": type, "nullable": True, "metadata": metadata}


def test_the_shape_ignores_comments_and_sees_types_and_identities() -> None:
    plain = column_layout(metadata(column("a")))
    assert column_layout(metadata(column("a", comment="x"))) == plain
    assert column_layout(metadata({**column("a"), "nullable": False})) == plain
    nested = {"type": "array", "elementType": "string", "containsNull": True}
    for other in (
        metadata(column("A")),
        metadata(column("a", "int")),
        metadata(column("a", nested)),
        metadata(column("a", **{"delta.columnMapping.id": 2})),
        metadata(column("a"), id="j"),
        metadata(column("a"), partitionColumns=["a"]),
        metadata(column("a"), column("b")),
    ):
        assert column_layout(other) != plain


def test_the_feed_is_a_property() -> None:
    assert has_change_feed({"configuration": {"delta.enableChangeDataFeed": "true"}})
    assert not has_change_feed({"configuration": {}})


def commit(
    version: int, *, base: int | None = None, ours: bool = True, kept: bool = False
) -> Commit:
    """Return a commit of a refresh, or of another writer."""
    facts: dict[str, Any] = {
        "mt": "m",
        "epoch": version,
        "definition_version": 1,
        "sources": {},
        "refresh_id": f"r{version}",
        "logical_time": "2026-01-01T00:00:00+00:00",
        **({} if base is None else {"base": base}),
    }
    return Commit(
        version=version,
        operation="WRITE",
        timestamp=0,
        metadata=facts if ours else {},
        rows=None,
        without_files=kept,
    )


@pytest.mark.parametrize(
    ("history", "foreign"),
    [
        ((commit(3), commit(2, ours=False), commit(1)), None),
        ((commit(4, ours=False), commit(3)), 4),
        ((commit(4, ours=False, kept=True), commit(3)), None),
        ((commit(3, base=1), commit(2, ours=False), commit(1)), 2),
        ((commit(3, base=1), commit(2, ours=False, kept=True), commit(1)), None),
        ((commit(3, base=1), commit(2, base=1), commit(1)), 2),
        ((commit(3, base=2), commit(2, ours=False), commit(1)), None),
    ],
)
def test_a_foreign_commit_is_one_the_content_does_not_account_for(
    history: tuple[Commit, ...], foreign: int | None
) -> None:
    found = last_refresh(history, "m")
    assert found is not None
    assert found.version == 3
    assert found.foreign_version == foreign


def test_without_a_refresh_there_is_none() -> None:
    assert last_refresh([commit(1, ours=False)], "m") is None
