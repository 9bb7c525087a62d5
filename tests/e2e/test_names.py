"""Names, tables and directories under any sequence of statements, by one session and by six.

After each step of one session the catalog, the metastore, the directories and the rows are those of
a model; strangers' files, external tables and views stand in the same directory. Of six sessions at
once nothing is known beforehand but that they end in a state in which every name is whole.
``bin/test --full tests/e2e/test_names.py`` goes on for an hour.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

import tidegate
from tests.support.fixtures.server import Server
from tests.support.full_run import FULL

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

NAMES = ("a", "b", "c", "d", "e")
names = st.sampled_from(NAMES)
OWN = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
"""How the directory of a materialized table ends."""
MT = "MATERIALIZED TABLE"
REFUSED = re.compile(
    r"^(MT_|TABLE_OR_VIEW_|EXPECT_TABLE_NOT_VIEW|DELTA_CREATE_TABLE_WITH_NON_EMPTY)"
)
"""How a statement may be refused; everything else is a defect."""
INTERRUPTED = {"OPERATION_CANCELED", "FAILED_READ_FILE.FILE_NOT_EXIST"}
"""Errors of a statement while another session cancels it or drops a table that it reads."""
_schemas = itertools.count()
_tokens = itertools.count()


def create(name: str, token: str, words: str = "CREATE") -> str:
    return f"{words} {MT} {name} FRESHNESS = INTERVAL '1' DAY AS SELECT '{token}' AS v"


class Session:
    """A connection whose errors are known by their code."""

    def __init__(self, server: Server, schema: str) -> None:
        self._connection = server.connect(schema=schema)
        self._cursor = self._connection.cursor()

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        self._cursor.execute(statement)
        return [tuple(row) for row in self._cursor.fetchall()] if self._cursor.description else []

    def code(self, statement: str) -> str:
        """Run a statement; return the code of its error, empty if it succeeds."""
        try:
            self.rows(statement)
        except tidegate.Error as problem:
            found = re.match(r"\[([A-Z_0-9.]+)\]", str(problem))
            return found[1] if found else str(problem)
        return ""

    def close(self) -> None:
        self._cursor.close()
        self._connection.close()


def tables_in(session: Session) -> set[str]:
    """Return what the metastore lists, but the views and storage of materialized tables."""
    return {str(row[1]) for row in session.rows("SHOW TABLES")}


def materialized_names(session: Session) -> set[str]:
    return {str(row[0]).rpartition(".")[2] for row in session.rows(f"SHOW {MT}S")}


def own_directories(home: Path) -> list[str]:
    return sorted(p.name for p in home.iterdir() if OWN.search(p.name)) if home.exists() else []


class Names(RuleBasedStateMachine):
    """One session over five names; ``kinds`` and ``rows`` are what the names should be."""

    server: Server

    @initialize()
    def open(self) -> None:
        self.schema = f"names{next(_schemas)}"
        self.home = self.server.data / "warehouse" / f"{self.schema}.db"
        with closing(Session(self.server, "default")) as first:
            first.rows(f"CREATE SCHEMA {self.schema}")
        self.session = Session(self.server, self.schema)
        self.kinds: dict[str, str] = {}
        self.rows: dict[str, list[str]] = {}
        self.defined: dict[str, str] = {}
        self.files: dict[Path, str] = {}
        self.converted: set[str] = set()

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        for name, kind in self.kinds.items():
            drop = {"mt": MT, "view": "VIEW"}.get(kind, "TABLE")
            self.session.rows(f"DROP {drop} {name}")
        self._strangers_are_whole()
        assert own_directories(self.home) == []
        assert self.session.code(f"DROP SCHEMA {self.schema}") == ""
        self._strangers_are_whole()
        assert self.home.exists() is bool(self.files or self._external_places())
        self.session.close()

    def _external_places(self) -> list[Path]:
        return list(self.home.iterdir()) if self.home.exists() else []

    # ---- statements ----------------------------------------------------------------------------

    def attempt(self, statement: str, *, allowed: bool) -> bool:
        """Run a statement, which succeeds exactly if the model allows it."""
        code = self.session.code(statement)
        assert (code == "") is allowed, (statement, code, self.kinds)
        assert code == "" or REFUSED.match(code), (statement, code)
        return allowed

    @rule(name=names, or_alter=st.booleans())
    def create_materialized(self, name: str, or_alter: bool) -> None:
        token = f"m{next(_tokens)}"
        kind = self.kinds.get(name)
        words = "CREATE OR ALTER" if or_alter else "CREATE"
        allowed = kind is None or (or_alter and kind == "mt")
        if self.attempt(create(name, token, words), allowed=allowed):
            self.kinds[name] = "mt"
            self.rows.setdefault(name, [])
            self.defined[name] = token

    @rule(name=names, how=st.sampled_from(("", "FULL")))
    def refresh(self, name: str, how: str) -> None:
        allowed = self.kinds.get(name) == "mt"
        if self.attempt(f"ALTER {MT} {name} REFRESH {how}", allowed=allowed):
            self.rows[name] = [self.defined[name]]

    @rule(name=names)
    def alter_query(self, name: str) -> None:
        token = f"q{next(_tokens)}"
        statement = f"ALTER {MT} {name} AS SELECT '{token}' AS v"
        if self.attempt(statement, allowed=self.kinds.get(name) == "mt"):
            self.defined[name] = token

    @rule(name=names, if_exists=st.booleans())
    def drop_materialized(self, name: str, if_exists: bool) -> None:
        kind = self.kinds.get(name)
        words = "IF EXISTS " if if_exists else ""
        allowed = kind == "mt" or (if_exists and kind is None)
        if self.attempt(f"DROP {MT} {words}{name}", allowed=allowed) and kind == "mt":
            self._forget(name)

    @rule(name=names, other=names)
    def rename(self, name: str, other: str) -> None:
        allowed = self.kinds.get(name) == "mt" and (name == other or other not in self.kinds)
        if self.attempt(f"ALTER {MT} {name} RENAME TO {other}", allowed=allowed):
            self.kinds[other], self.rows[other] = self.kinds.pop(name), self.rows.pop(name)
            self.defined[other] = self.defined.pop(name)

    @rule(name=names, other=names)
    def swap(self, name: str, other: str) -> None:
        allowed = self.kinds.get(name) == self.kinds.get(other) == "mt"
        if self.attempt(f"ALTER {MT} {name} SWAP WITH {other}", allowed=allowed):
            for known in (self.rows, self.defined):
                known[name], known[other] = known[other], known[name]  # type: ignore[index]

    @rule(name=names)
    def convert(self, name: str) -> None:
        if self.attempt(
            f"ALTER {MT} {name} CONVERT TO TABLE", allowed=self.kinds.get(name) == "mt"
        ):
            self.kinds[name] = "plain"
            self.converted.add(name)

    @rule(name=names)
    def create_plain(self, name: str) -> None:
        token = f"p{next(_tokens)}"
        taken = name in self.kinds or (self.home / name).exists()
        if self.session.code(f"CREATE TABLE {name} USING delta AS SELECT '{token}' AS v") == "":
            assert not taken
            self.kinds[name], self.rows[name] = "plain", [token]
        else:
            assert taken, name

    @rule(name=names, place=names)
    def create_external(self, name: str, place: str) -> None:
        """Put a table of parquet into the directory that another name usually has."""
        if name in self.kinds or (self.home / place).exists():
            return
        token = f"x{next(_tokens)}"
        location = self.home / place
        self.session.rows(
            f"CREATE TABLE {name} USING parquet LOCATION '{location}' AS SELECT '{token}' AS v"
        )
        self.kinds[name], self.rows[name] = "external", [token]
        for file in location.glob("*.parquet"):
            self.files[file] = ""

    @rule(name=names)
    def create_view(self, name: str) -> None:
        token = f"v{next(_tokens)}"
        statement = f"CREATE VIEW {name} AS SELECT '{token}' AS v"
        if self.attempt(statement, allowed=name not in self.kinds):
            self.kinds[name], self.rows[name] = "view", [token]

    @rule(name=names)
    def drop_other(self, name: str) -> None:
        kind = self.kinds.get(name, "plain")
        drop = "VIEW" if kind == "view" else "TABLE"
        allowed = name in self.kinds and kind != "mt"
        if self.attempt(f"DROP {drop} {name}", allowed=allowed):
            self._forget(name)

    @rule(name=names)
    def leave_a_file(self, name: str) -> None:
        """Put a person's file into the directory that a name usually has."""
        if self.kinds.get(name) == "plain" and name not in self.converted:
            return
        place = self.home / name
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"_notes{next(_tokens)}.txt"
        file.write_text(name)
        self.files[file] = name

    @rule(name=names)
    def leave_a_file_in_a_table(self, name: str) -> None:
        """Nothing is shown of it, and DROP leaves it where it is."""
        for place in self.home.iterdir() if self.home.exists() else ():
            if OWN.search(place.name) and place.name.startswith(f"{name}-"):
                return self.leave_a_file(f"{name}")
        return None

    def _forget(self, name: str) -> None:
        for known in (self.kinds, self.rows, self.defined):
            known.pop(name, None)  # type: ignore[attr-defined]
        self.converted.discard(name)

    # ---- what must hold ------------------------------------------------------------------------

    @invariant()
    def names_are_whole(self) -> None:
        if not hasattr(self, "session"):
            return
        listed = {n for n, kind in self.kinds.items() if kind == "mt"}
        assert materialized_names(self.session) == listed
        assert tables_in(self.session) == set(self.kinds)
        for name, expected in self.rows.items():
            found = sorted(str(row[0]) for row in self.session.rows(f"SELECT v FROM {name}"))
            assert found == expected, (name, self.kinds)
        assert len(own_directories(self.home)) == len(listed) + len(self.converted)
        self._strangers_are_whole()

    def _strangers_are_whole(self) -> None:
        for file, text in self.files.items():
            assert file.exists(), file
            assert not text or file.read_text() == text


@pytest.mark.timeout(0 if FULL else 900)
def test_names_of_one_session(server: Server) -> None:
    class Bound(Names):
        pass

    Bound.server = server
    run_machine(
        Bound,
        settings=settings(
            max_examples=150 if FULL else 2,
            stateful_step_count=40 if FULL else 20,
            deadline=None,
            derandomize=not FULL,
            phases=(Phase.generate, Phase.shrink) if FULL else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


# ---- six sessions ------------------------------------------------------------------------------

SESSIONS = 6
STATEMENTS = 25 if FULL else 15
"""How many each of them runs in a round."""


def any_statement(rng: random.Random, number: int) -> str:
    """Return one of the statements that make, change, read or remove a materialized table."""
    name, other = rng.choice(NAMES), rng.choice(NAMES)
    token = f"t{number}"
    return rng.choice(
        (
            create(name, token),
            create(name, token),
            create(name, token, "CREATE OR ALTER"),
            f"DROP {MT} {name}",
            f"DROP {MT} IF EXISTS {name}",
            f"ALTER {MT} {name} RENAME TO {other}",
            f"ALTER {MT} {name} SWAP WITH {other}",
            f"ALTER {MT} {name} SWAP WITH {other}",
            f"ALTER {MT} {name} REFRESH",
            f"ALTER {MT} {name} REFRESH FULL",
            f"ALTER {MT} {name} SUSPEND",
            f"ALTER {MT} {name} CANCEL REFRESH",
            f"ALTER {MT} {name} AS SELECT '{token}' AS v",
            f"SELECT * FROM {name}",
            f"INSERT INTO {name} VALUES ('i')",
            f"DELETE FROM {name}",
            f"VERIFY {MT} {name}",
        )
    )


def run_at_random(server: Server, schema: str, seed: int, count: int, codes: Counter[str]) -> None:
    rng = random.Random(seed)
    with closing(Session(server, schema)) as session:
        for number in range(count):
            statement = any_statement(rng, seed * 10_000 + number)
            code = session.code(statement)
            if code and not REFUSED.match(code) and code not in INTERRUPTED:
                code = f"defect {code} by {statement}"
            codes[code] += 1


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    name = f"names{next(_schemas)}"
    with closing(Session(server, "default")) as session:
        session.rows(f"CREATE SCHEMA {name}")
        yield name
        session.rows(f"DROP SCHEMA {name}")


@pytest.mark.timeout(0 if FULL else 900)
def test_names_of_six_sessions(server: Server, schema: str) -> None:
    deadline = time.monotonic() + (3000 if FULL else 0)
    for round_number in itertools.count():
        codes: Counter[str] = Counter()
        seeds = [round_number * SESSIONS + number + 1 for number in range(SESSIONS)]
        threads = [
            threading.Thread(target=run_at_random, args=(server, schema, seed, STATEMENTS, codes))
            for seed in seeds
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"seeds {seeds}: {dict(codes)}")  # noqa: T201
        defects = [code for code in codes if code.startswith("defect")]
        assert defects == [], (seeds, defects)
        check_and_drop(server, schema)
        if time.monotonic() >= deadline:
            break


def check_and_drop(server: Server, schema: str) -> None:
    """Every name is whole: listed in both books, read, verified, refreshed, dropped for good."""
    home = server.data / "warehouse" / f"{schema}.db"
    with closing(Session(server, schema)) as session:
        listed = materialized_names(session)
        assert tables_in(session) == listed
        assert len(own_directories(home)) == len(listed)
        for name in sorted(listed):
            session.rows(f"SELECT * FROM {name}")
            session.rows(f"ALTER {MT} {name} REFRESH")
            [(*_, equal)] = [row[-1:] for row in session.rows(f"VERIFY {MT} {name}")]
            assert equal is not False
            session.rows(f"DROP {MT} {name}")
        assert tables_in(session) == set()
    assert own_directories(home) == []
