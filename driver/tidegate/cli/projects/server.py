"""Compares a directory with a server, and makes the server's tables equal to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace

import tidegate
from tidegate.cli.projects.directory import Definition, FullName, define
from tidegate.cli.projects.plan import Action, Plan, Step, changes_of, estimate_of
from tidegate.cli.projects.sources import Project
from tidegate.cli.report import describe_error
from tidegate.connection import Connection
from tidegate.cursor import Cursor
from tidegate.lexical import quote_name
from tidegate.literals import literal

OPTION = "materialized-table.project"
"""The option by which the server knows which directory a table belongs to."""

_SETTLED = frozenset({Action.NONE, Action.LEAVE})
_PATH = literal(f"$['{OPTION}']")
_TABLES = (
    f"SELECT table_catalog, table_schema, table_name, get_json_object(options, {_PATH}) "
    "FROM information_schema.materialized_tables"
)

Connect = Callable[[], Connection]
Progress = Callable[[str], None]


def make_plan(
    connection: Connection,
    connect: Connect,
    source: Project,
    project: str,
    *,
    prune: bool,
    analyze: bool,
    connections: int,
    say: Progress,
) -> Plan:
    """Compare a directory with the server; changes nothing.

    :param connection: a session with ``OPTION`` among its settings.
    :param connect: opens further ones, to compare definitions.
    :param prune: whether tables are dropped that the directory no longer defines.
    :param analyze: whether the server analyzes definitions that are word for word as it has them,
        since the columns of their sources may have changed.
    :param connections: how many definitions are compared at a time.
    :param say: gets a line about the progress.
    :raises ProjectError: if the directory cannot be used.
    :raises tidegate.Error: if the server cannot be used.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_catalog(), current_schema()")
        [(catalog, schema)] = cursor.fetchall()
        definitions = define(source.statements(), str(catalog), str(schema))
        word = "EXPLAIN COST" if analyze else "EXPLAIN"
        compared = _compare_all(connect, definitions, word, connections, say)
        cursor.execute(_TABLES)
        owners = {(str(a), str(b), str(c)): owner for a, b, c, owner in cursor.fetchall()}
        steps = list(_settle(definitions, compared, owners.keys()))
        removed = sorted(
            name for name, owner in owners.items() if owner == project and name not in compared
        )
        action = Action.DROP if prune else Action.LEAVE
        steps += [Step(name=name, action=action) for name in removed]
        known = {step.name for step in steps}
        seen = [_with_readers(cursor, step, known) for step in steps]
    return Plan(project=project, steps=tuple(seen))


def apply_step(cursor: Cursor, step: Step) -> None:
    """Carry out one step.

    :raises tidegate.Error: if the server refuses.
    """
    if step.definition is not None:
        cursor.execute(step.definition.part.sql)
    elif step.action is Action.DROP:
        cursor.execute(f"DROP MATERIALIZED TABLE IF EXISTS {_quoted(step.name)}")


def steps_to_apply(plan: Plan) -> list[Step]:
    """Return the steps that change something, and those that read a table of one of them."""
    chosen: dict[FullName, Step] = {}
    for step in plan.steps:
        upstream = step.definition.upstream if step.definition else ()
        if step.action not in _SETTLED or any(name in chosen for name in upstream):
            chosen[step.name] = step
    return list(chosen.values())


def _compare_all(
    connect: Connect,
    definitions: tuple[Definition, ...],
    word: str,
    connections: int,
    say: Progress,
) -> Mapping[FullName, Step]:
    local = threading.local()
    done = 0
    steps = {}
    # The threads end before their connections are closed.
    with ExitStack() as stack, ThreadPoolExecutor(connections, "plan") as pool:

        def cursor() -> Cursor:
            if not hasattr(local, "cursor"):
                connection = stack.enter_context(closing(connect()))
                local.cursor = stack.enter_context(connection.cursor())
            found: Cursor = local.cursor
            return found

        for step in pool.map(lambda definition: _compare(cursor(), definition, word), definitions):
            steps[step.name] = step
            done += 1
            say(f"Comparing definitions: {done:,} of {len(definitions):,}")
    return steps


def _compare(cursor: Cursor, definition: Definition, word: str) -> Step:
    name = definition.name
    # Positions in errors are those of the statement that is sent.
    part = replace(definition.part, sql=f"{word} {definition.part.sql}")
    try:
        cursor.execute(part.sql)
        columns = [str(column[0]) for column in cursor.description or ()]
        rows = cursor.fetchall()
        changes = changes_of(columns, rows)
    except tidegate.OperationalError:
        raise
    except tidegate.Error as error:
        problem = describe_error(error, part, definition.file)
        return Step(name=name, action=Action.REJECT, definition=definition, problem=problem)
    if changes is None:
        estimate = estimate_of("\n".join(str(row[0]) for row in rows))
        return Step(name=name, action=Action.CREATE, definition=definition, estimate=estimate)
    rejected = next((change for change in changes if change.effect == "REJECTED"), None)
    if rejected is not None:
        problem = f"{definition.place}: {rejected.reason}"
        return Step(
            name=name,
            action=Action.REJECT,
            definition=definition,
            changes=changes,
            problem=problem,
        )
    action = Action.ALTER if changes else Action.NONE
    return Step(name=name, action=action, definition=definition, changes=changes)


def _settle(
    definitions: Iterable[Definition],
    compared: Mapping[FullName, Step],
    existing: Collection[FullName],
) -> Iterable[Step]:
    """Yield the steps; what is rejected may be right once the tables that it reads are changed."""
    settled: dict[FullName, Step] = {}
    for definition in definitions:
        step = compared[definition.name]
        if step.action is Action.REJECT:
            upstream = [settled[name].action for name in definition.upstream]
            changing = {Action.CREATE, Action.ALTER, Action.LATER}
            if changing.intersection(upstream) and Action.REJECT not in upstream:
                new = step.name not in existing
                action = Action.CREATE if new else Action.LATER
                step = Step(name=step.name, action=action, definition=definition)
        settled[step.name] = step
        yield step


def _with_readers(cursor: Cursor, step: Step, known: set[FullName]) -> Step:
    """Add the tables outside the directory that read a table which is changed."""
    if step.action not in (Action.ALTER, Action.DROP):
        return step
    cursor.execute(f"SHOW LINEAGE {_quoted(step.name)}")
    own, inside = ".".join(step.name), {".".join(name) for name in known}
    edges = [(str(row[0]), str(row[1])) for row in cursor.fetchall()]
    readers = sorted({table for table, source in edges if source == own} - inside)
    return replace(step, readers=tuple(readers))


def _quoted(name: FullName) -> str:
    return ".".join(map(quote_name, name))


def read_fingerprint(text: str) -> str | None:
    """Return the fingerprint in the file of a plan; None if it is no such file."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    fingerprint = found.get("fingerprint") if isinstance(found, dict) else None
    return fingerprint if isinstance(fingerprint, str) else None
