"""Privileges: every user, object and action by a table, then the statements that need them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, product
from typing import get_args

import pyarrow as pa
import pytest

from tests.contract.examples import NOON
from tests.contract.examples import table as example
from tests.gateway.command.fakes import FakeEngine, World, analysis, name
from tidegate_server.core.config import AuthorizationSection, Config, Hazard, ServerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Mention, Reach, Reading, Surveyed
from tidegate_server.core.messages.requests import Survey
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import (
    Grant,
    GrantObject,
    Privilege,
    SchemaObject,
    TableObject,
)
from tidegate_server.core.model.result import RowsResult
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.gateway.authorization.admission import (
    check_owner,
    check_settings,
    engine_settings,
    hidden_names,
)
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    is_foreign,
    is_static,
    overlap,
)
from tidegate_server.gateway.authorization.visibility import narrow_query, without_hidden
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.store.privileges import MemoryPrivileges, Privileges

# ---- the pure matrix -------------------------------------------------------------------------

DAILY = example(id="t-1", name=TableName("c", "d", "daily"), owner="ann")
HOURLY = example(id="t-2", name=TableName("c", "d", "hourly"), owner="ann")
OTHER = example(id="t-3", name=TableName("c", "Elsewhere", "daily"), owner="carl")
TABLES = (DAILY, HOURLY, OTHER)
OBJECTS: tuple[GrantObject, ...] = (
    TableObject(table_id="t-1"),
    TableObject(table_id="t-3"),
    SchemaObject(catalog="c", schema="d"),
    SchemaObject(catalog="c", schema="elsewhere"),
)
COVERED = {
    OBJECTS[0]: {"t-1"},
    OBJECTS[1]: {"t-3"},
    OBJECTS[2]: {"t-1", "t-2"},
    OBJECTS[3]: {"t-3"},
}
GIVEN = {
    Privilege.SELECT: {Action.SEE, Action.SELECT},
    Privilege.REFRESH: {Action.SEE, Action.REFRESH},
    Privilege.ALTER: {Action.SEE, Action.ALTER},
}


def grant(user: str, privilege: Privilege, on: GrantObject) -> Grant:
    return Grant(user=user, privilege=privilege, object=on, granted_by="ann", granted_at=NOON)


def grant_sets() -> Iterator[tuple[tuple[Privilege, GrantObject], ...]]:
    """Yield every choice of up to two grants."""
    single = tuple(product(GIVEN, OBJECTS))
    yield from chain.from_iterable(combinations(single, size) for size in range(3))


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.id)
def test_grants_allow_what_they_name_on_what_they_cover(
    table: MaterializedTable, action: Action
) -> None:
    for chosen in grant_sets():
        rights = Rights(user="bob", grants=tuple(grant("bob", *one) for one in chosen))
        expected = any(action in GIVEN[p] and table.id in COVERED[on] for p, on in chosen)
        assert rights.may(action, table) is expected, chosen


@pytest.mark.parametrize("action", Action)
def test_owners_and_administrators_may_do_everything(action: Action) -> None:
    assert [Rights(user="ann").may(action, table) for table in TABLES] == [True, True, False]
    assert all(Rights(user="root", administrator=True).may(action, table) for table in TABLES)


@pytest.mark.parametrize("action", Action)
def test_grants_of_others_and_names_spelled_otherwise_give_nothing(action: Action) -> None:
    everything = tuple(grant("bob", p, on) for p, on in product(GIVEN, OBJECTS))
    for user in ("eve", "Bob", "bob ", ""):
        assert not any(Rights(user=user, grants=everything).may(action, t) for t in TABLES)


def test_all_stands_for_the_three_privileges() -> None:
    assert set(Privilege.ALL.parts()) == set(GIVEN)


# ---- statements ------------------------------------------------------------------------------

READS_M = Surveyed(readings=(Reading(name=TableName("c", "d", "m"), location="file:/warehouse/m"),))


class SurveyingEngine(FakeEngine):
    """Also answers what statements read, from what the test prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.surveys: dict[str, Surveyed] = {}

    def call(self, request, **options):  # type: ignore[no-untyped-def]
        if isinstance(request, Survey):
            self.requests.append(request)
            return self.surveys.get(request.sql.strip(), Surveyed())
        try:
            return super().call(request, **options)
        except AssertionError as unknown:
            # Whatever else a statement asks for, its user was let through.
            raise error(Code.NOT_SUPPORTED, what="this request") from unknown


@dataclass
class Guarded(World):
    """A world in which privileges are checked; ann owns m, and n, which reads m."""

    privileges: Privileges = field(default_factory=MemoryPrivileges)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.config = Config(
            authorization=AuthorizationSection(enabled=True, administrators=("root",))
        )
        self.engine: SurveyingEngine = SurveyingEngine()
        self.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT 1")
        self.engine.analyses["SELECT 2"] = analysis(analysis().schema, "m")
        self.execute("CREATE MATERIALIZED TABLE n FRESHNESS = INTERVAL '1' DAY AS SELECT 2")

    def _services(self) -> Services:
        return replace(super()._services(), privileges=self.privileges)

    def be(self, user: str) -> None:
        self.session.user = user

    def may(self, *privileges: Privilege, table: str = "m", user: str = "bob") -> None:
        on = TableObject(table_id=self.table(table).id)
        for privilege in privileges:
            self.privileges.grant(grant(user, privilege, on))

    def outcome(self, text: str) -> str:
        """Return the code of the error that a statement ends with, or an empty text."""
        try:
            self.execute(text)
        except ServerError as problem:
            return problem.code
        return ""


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


NEEDED = {
    "SHOW CREATE MATERIALIZED TABLE m": Action.SEE,
    "SHOW LINEAGE m": Action.SEE,
    "SHOW REFRESH HISTORY FOR m": Action.SEE,
    "SHOW VERSIONS m": Action.SEE,
    "SHOW VERSIONS m DEFINITION": Action.SEE,
    "SHOW GRANTS ON MATERIALIZED TABLE m": Action.SEE,
    "DESCRIBE m": Action.SEE,
    "DESCRIBE EXTENDED c.d.m AS JSON": Action.SEE,
    "SELECT * FROM m": Action.SELECT,
    "SELECT * FROM a_view_of_m": Action.SELECT,
    "CREATE MATERIALIZED TABLE p FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM m": Action.SELECT,
    "EXPLAIN CREATE MATERIALIZED TABLE p AS SELECT * FROM m": Action.SELECT,
    "VERIFY MATERIALIZED TABLE m": Action.SELECT,
    "ALTER MATERIALIZED TABLE m REFRESH": Action.REFRESH,
    "ALTER MATERIALIZED TABLE m REFRESH FULL": Action.REFRESH,
    "ALTER MATERIALIZED TABLE m CANCEL REFRESH": Action.REFRESH,
    "EXPLAIN REFRESH MATERIALIZED TABLE m": Action.REFRESH,
    "ALTER MATERIALIZED TABLE m SUSPEND": Action.ALTER,
    "ALTER MATERIALIZED TABLE m RESUME": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET ('k' = 'v')": Action.ALTER,
    "ALTER MATERIALIZED TABLE m RESET ('k')": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '2' HOUR": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET REFRESH_MODE = FULL": Action.ALTER,
    "ALTER MATERIALIZED TABLE m AS SELECT 1": Action.ALTER,
    "EXPLAIN ALTER MATERIALIZED TABLE m AS SELECT 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ADD (x INT)": Action.ALTER,
    "ALTER MATERIALIZED TABLE m MODIFY (a BIGINT COMMENT 'x')": Action.ALTER,
    "ALTER MATERIALIZED TABLE m DROP PRIMARY KEY": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ROLLBACK TO VERSION 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ROLLBACK DEFINITION TO VERSION 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ROLLBACK TO VERSION 1 BOTH": Action.ALTER,
    "ALTER MATERIALIZED TABLE m PUBLISH HELD VERSION": Action.ALTER,
    "ALTER MATERIALIZED TABLE m DISCARD HELD VERSION": Action.ALTER,
    "EXPLAIN ALTER MATERIALIZED TABLE m ROLLBACK DEFINITION TO VERSION 1": Action.ALTER,
    "CREATE OR ALTER MATERIALIZED TABLE m AS SELECT 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET EXECUTE AS OWNER": Action.OWN,
    "ALTER MATERIALIZED TABLE m RENAME TO q": Action.OWN,
    "ALTER MATERIALIZED TABLE m SWAP WITH q": Action.OWN,
    "ALTER MATERIALIZED TABLE q SWAP WITH m": Action.OWN,
    "ALTER MATERIALIZED TABLE m CONVERT TO TABLE": Action.OWN,
    "DROP MATERIALIZED TABLE m": Action.OWN,
    "DROP MATERIALIZED TABLE IF EXISTS m": Action.OWN,
    "GRANT SELECT ON MATERIALIZED TABLE m TO USER eve": Action.OWN,
    "REVOKE SELECT ON MATERIALIZED TABLE m FROM USER eve": Action.OWN,
}
HELD: tuple[frozenset[Privilege], ...] = tuple(
    frozenset(chosen) for size in range(4) for chosen in combinations(GIVEN, size)
)


@pytest.mark.parametrize("held", HELD, ids=lambda held: "+".join(sorted(p.value for p in held)))
@pytest.mark.parametrize("text", NEEDED)
def test_a_statement_needs_its_privilege(
    guarded: Guarded, text: str, held: frozenset[Privilege]
) -> None:
    guarded.engine.surveys["SELECT * FROM m"] = READS_M
    guarded.engine.surveys["SELECT * FROM a_view_of_m"] = READS_M
    guarded.may(*held)
    guarded.be("bob")
    allowed = any(NEEDED[text] in GIVEN[privilege] for privilege in held)
    assert (guarded.outcome(text) != "ACCESS_DENIED") is allowed


@pytest.mark.parametrize("user", ["ann", "root"])
@pytest.mark.parametrize("text", NEEDED)
def test_owner_and_administrator_are_never_denied(guarded: Guarded, text: str, user: str) -> None:
    guarded.engine.surveys["SELECT * FROM m"] = READS_M
    guarded.be(user)
    assert guarded.outcome(text) != "ACCESS_DENIED"


def test_a_denial_names_user_privilege_and_table_and_nothing_of_the_definition(
    guarded: Guarded,
) -> None:
    guarded.be("bob")
    with pytest.raises(ServerError) as caught:
        guarded.execute("SHOW CREATE MATERIALIZED TABLE m")
    assert caught.value.sqlstate == "42501"
    assert caught.value.message == "User bob needs a privilege on materialized table c.d.m."
    counted = guarded._services().metrics
    assert b"tidegate_access_denials_total" in counted.text()


def test_nothing_of_a_denied_statement_reaches_spark(guarded: Guarded) -> None:
    guarded.engine.surveys["SELECT * FROM m"] = READS_M
    guarded.engine.requests.clear()
    guarded.be("bob")
    assert guarded.outcome("SELECT * FROM m") == "ACCESS_DENIED"
    assert {type(request).__name__ for request in guarded.engine.requests} <= {
        "OpenSession",
        "Survey",
    }


@pytest.mark.parametrize(
    "reading",
    [
        Reading(name=TableName("C", "D", "M")),
        Reading(location="file:{place}"),
        Reading(location="{place}/part=1"),
        Reading(name=TableName("c", "d", "a_copy"), location="file://{place}"),
    ],
    ids=["name", "path", "partition", "external table"],
)
def test_a_table_is_recognised_however_it_is_read(guarded: Guarded, reading: Reading) -> None:
    location = (reading.location or "").format(place=guarded.table("m").location)
    reading = replace(reading, location=location)
    guarded.engine.surveys["SELECT 7"] = Surveyed(readings=(reading,))
    guarded.be("bob")
    assert guarded.outcome("SELECT 7") == "ACCESS_DENIED"


def test_reading_a_table_needs_nothing_on_those_it_is_made_of(guarded: Guarded) -> None:
    guarded.engine.surveys["SELECT * FROM n"] = Surveyed(readings=(Reading(name=name("n")),))
    guarded.may(Privilege.SELECT, table="n")
    guarded.be("bob")
    assert guarded.outcome("SELECT * FROM n") == ""


def test_a_cascade_needs_every_table_it_refreshes(guarded: Guarded) -> None:
    guarded.may(Privilege.REFRESH)
    guarded.be("bob")
    assert guarded.outcome("ALTER MATERIALIZED TABLE m REFRESH CASCADE") == "ACCESS_DENIED"
    guarded.may(Privilege.REFRESH, table="n")
    assert guarded.outcome("ALTER MATERIALIZED TABLE m REFRESH CASCADE") != "ACCESS_DENIED"


@pytest.mark.parametrize("action", ["SUSPEND", "RESUME"])
def test_a_cascade_needs_every_table_it_suspends(guarded: Guarded, action: str) -> None:
    text = f"ALTER MATERIALIZED TABLE m {action} CASCADE"
    guarded.may(Privilege.ALTER)
    guarded.be("bob")
    assert guarded.outcome(text) == "ACCESS_DENIED"
    guarded.may(Privilege.ALTER, table="n")
    assert guarded.outcome(text) != "ACCESS_DENIED"


@pytest.mark.parametrize(
    "form",
    [
        "ALTER MATERIALIZED TABLE n REFRESH CASCADE UPSTREAM",
        "ALTER MATERIALIZED TABLE n REFRESH FULL CASCADE UPSTREAM ASYNC",
        "EXPLAIN REFRESH n CASCADE UPSTREAM",
    ],
)
def test_so_does_one_upwards(guarded: Guarded, form: str) -> None:
    guarded.may(Privilege.REFRESH, table="n")
    guarded.be("bob")
    assert guarded.outcome(form) == "ACCESS_DENIED"
    guarded.may(Privilege.REFRESH)
    assert guarded.outcome(form) != "ACCESS_DENIED"


def test_a_condition_reads_under_its_users_name(guarded: Guarded) -> None:
    query = "SELECT 1 FROM `c`.`d`.`n` WHERE a IN (SELECT a FROM m)"
    guarded.engine.surveys[query] = Surveyed(
        readings=(Reading(name=name("n")), Reading(name=name("m")))
    )
    guarded.may(Privilege.REFRESH, table="n")
    guarded.be("bob")
    text = "ALTER MATERIALIZED TABLE n REFRESH WHERE a IN (SELECT a FROM m)"
    assert guarded.outcome(text) == "ACCESS_DENIED"
    guarded.may(Privilege.SELECT)
    assert guarded.outcome(text) != "ACCESS_DENIED"


def test_an_earlier_definition_reads_under_its_users_name(guarded: Guarded) -> None:
    first = guarded.table("n").expanded_query
    guarded.engine.analyses["SELECT 3"] = analysis(expanded="SELECT 3")
    guarded.execute("ALTER MATERIALIZED TABLE n AS SELECT 3")
    guarded.engine.surveys[first] = READS_M
    guarded.may(Privilege.ALTER, table="n")
    guarded.be("bob")
    text = "ALTER MATERIALIZED TABLE n ROLLBACK DEFINITION"
    assert guarded.outcome(text) == "ACCESS_DENIED"
    guarded.may(Privilege.SELECT)
    assert guarded.outcome(text) != "ACCESS_DENIED"


def test_expressions_of_a_definition_read_under_their_users_name(guarded: Guarded) -> None:
    guarded.engine.surveys["SELECT (SELECT max(a) FROM m)"] = READS_M
    guarded.may(Privilege.ALTER, table="n")
    guarded.be("bob")
    for text in (
        "CREATE MATERIALIZED TABLE p (a BIGINT, x AS (SELECT max(a) FROM m)) AS SELECT 1 AS a",
        "ALTER MATERIALIZED TABLE n ADD (x AS (SELECT max(a) FROM m))",
        "ALTER MATERIALIZED TABLE n MODIFY (WATERMARK FOR t AS (SELECT max(a) FROM m))",
        "ALTER MATERIALIZED TABLE n SET IMMUTABLE WHERE ((SELECT max(a) FROM m))",
    ):
        assert guarded.outcome(text) == "ACCESS_DENIED", text


@pytest.mark.parametrize("words", ["", "EXPLAIN "])
def test_a_backfill_needs_the_right_to_read_its_source(guarded: Guarded, words: str) -> None:
    guarded.engine.surveys["SELECT * FROM `c`.`d`.`m`"] = READS_M
    guarded.be("bob")
    text = (
        f"{words}CREATE MATERIALIZED TABLE p FRESHNESS = INTERVAL '1' DAY "
        "IMMUTABLE WHERE (a < 5) BACKFILL FROM m AS SELECT * FROM t1"
    )
    assert guarded.outcome(text) == "ACCESS_DENIED"
    guarded.may(Privilege.SELECT)
    assert guarded.outcome(text) == ""


def test_a_definition_does_not_read_information_schema(guarded: Guarded) -> None:
    guarded.engine.surveys["SELECT 3"] = of_system()
    text = "CREATE MATERIALIZED TABLE p FRESHNESS = INTERVAL '1' DAY AS SELECT 3"
    guarded.be("bob")
    assert guarded.outcome(text) == "ACCESS_DENIED"
    guarded.be("root")
    assert guarded.outcome(text) == ""


# ---- lists -----------------------------------------------------------------------------------


def test_lists_leave_out_what_a_user_may_not_know_of(guarded: Guarded) -> None:
    guarded.may(Privilege.REFRESH, table="n")
    guarded.execute("ALTER MATERIALIZED TABLE m REFRESH")
    guarded.execute("ALTER MATERIALIZED TABLE n REFRESH")
    guarded.be("bob")
    assert guarded.rows("SHOW MATERIALIZED TABLES") == [("n",)]
    for text in ("SHOW REFRESH HISTORY LIMIT 1", "SHOW REFRESH HISTORY"):
        assert {row[0] for row in guarded.rows(text)} == {"op4"}  # that of n
    guarded.be("root")
    assert guarded.rows("SHOW MATERIALIZED TABLES") == [("m",), ("n",)]


def test_consumers_that_a_user_may_not_know_of_are_no_lineage(guarded: Guarded) -> None:
    guarded.may(Privilege.SELECT)
    guarded.be("bob")
    assert not [row for row in guarded.rows("SHOW LINEAGE m") if "c.d.n" in row]


def test_hidden_names_are_those_of_tables_without_any_privilege(guarded: Guarded) -> None:
    guarded.may(Privilege.ALTER, table="n")
    services = guarded._services()
    assert hidden_names("bob", services) == {name("m")}
    assert hidden_names("root", services) == hidden_names("ann", services) == frozenset()
    off = replace(services, config=Config())
    assert hidden_names("bob", off) == frozenset()


SYSTEM = TableName("spark_catalog", "information_schema", "materialized_tables")
QUERY = "SELECT * FROM information_schema.materialized_tables -- all"
SPAN = (QUERY.index("information"), QUERY.index(" --"))


def of_system(*mentions: Mention, count: int = 1) -> Surveyed:
    return Surveyed(readings=(Reading(name=SYSTEM),) * count, mentions=mentions)


def test_information_schema_shows_the_rows_of_visible_tables() -> None:
    mention = Mention(name=SYSTEM, start=SPAN[0], end=SPAN[1], aliased=False)
    inner = "SELECT * FROM `spark_catalog`.`information_schema`.`materialized_tables` WHERE"
    assert narrow_query(QUERY, of_system(mention), (DAILY, HOURLY)) == (
        f"SELECT * FROM ({inner} table_id IN ('t-1', 't-2')) AS `materialized_tables` -- all"
    )
    aliased = replace(mention, aliased=True)
    assert narrow_query(QUERY, of_system(aliased), ()) == f"SELECT * FROM ({inner} false) -- all"
    short = replace(mention, start=0, end=len(QUERY), statement=True)
    assert narrow_query(QUERY, of_system(short), ()) == f"SELECT * FROM ({inner} false)"


def test_other_queries_stay_byte_for_byte() -> None:
    assert narrow_query("SELECT  1", Surveyed(), ()) == "SELECT  1"


def test_information_schema_behind_a_view_or_a_command_is_refused(guarded: Guarded) -> None:
    mention = Mention(name=SYSTEM, start=SPAN[0], end=SPAN[1], aliased=False)
    assert narrow_query(QUERY, of_system(), ()) is None
    assert narrow_query(QUERY, of_system(mention, count=2), ()) is None
    guarded.engine.surveys["EXPLAIN x"] = of_system()
    guarded.be("bob")
    assert guarded.outcome("EXPLAIN x") == "ACCESS_DENIED"


def test_spark_lists_lose_hidden_tables_and_nothing_else() -> None:
    schema = Schema(
        (
            Column(name="namespace", type="string"),
            Column(name="tableName", type="string"),
            Column(name="isTemporary", type="boolean"),
        )
    )
    types = (pa.string(), pa.string(), pa.bool_())
    rows = [("d", "m", False), ("d", "n", False), ("", "m", True)]
    listed = RowsResult(schema, list(rows), types=types)
    shown = without_hidden(listed, {name("m")})
    [batch] = shown.batches(0)
    assert [tuple(row.values()) for row in batch.to_pylist()] == rows[1:]
    assert shown.schema == schema


# ---- beyond tables ---------------------------------------------------------------------------


def test_every_reach_but_the_unknown_can_be_allowed_by_name() -> None:
    assert {reach.value for reach in Reach} - {"unknown"} == set(get_args(Hazard))


def reaching(world: Guarded, surveyed: Surveyed, config: Config) -> str:
    world.config = config
    world.engine.surveys["SELECT 7"] = surveyed
    world.be("bob")
    return world.outcome("SELECT 7")


LOGINS = ServerSection(auth="PASSWORD")


@pytest.mark.parametrize("reach", Reach)
def test_what_reaches_beyond_tables_is_denied_where_logins_are_checked(
    guarded: Guarded, reach: Reach
) -> None:
    surveyed = Surveyed(reaches=(reach,))
    assert reaching(guarded, surveyed, Config(server=LOGINS)) == "ACCESS_DENIED"
    enabled = Config(authorization=AuthorizationSection(enabled=True))
    assert reaching(guarded, surveyed, enabled) == "ACCESS_DENIED"
    assert reaching(guarded, surveyed, Config()) == ""
    administrator = Config(
        server=LOGINS, authorization=AuthorizationSection(administrators=("bob",))
    )
    assert reaching(guarded, surveyed, administrator) == ""


@pytest.mark.parametrize("reach", [reach for reach in Reach if reach is not Reach.UNKNOWN])
def test_each_reach_can_be_allowed(guarded: Guarded, reach: Reach) -> None:
    allowed = AuthorizationSection.model_validate({"allow": [reach.value]})
    config = Config(server=LOGINS, authorization=allowed)
    assert reaching(guarded, Surveyed(reaches=(reach,)), config) == ""
    others = tuple(other for other in Reach if other is not reach)
    for other in others:
        assert reaching(guarded, Surveyed(reaches=(other,)), config) == "ACCESS_DENIED"


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (Config(), {}),
        (Config(server=LOGINS), {"spark.sql.variable.substitute": "false"}),
        (
            Config(authorization=AuthorizationSection(enabled=True)),
            {"spark.sql.variable.substitute": "false"},
        ),
        (
            Config(server=LOGINS, authorization=AuthorizationSection(allow=("static-settings",))),
            {},
        ),
        (
            Config.model_validate(
                {
                    "authorization": {"enabled": True},
                    "engine": {"settings": {"spark.sql.variable.substitute": "true"}},
                }
            ),
            {"spark.sql.variable.substitute": "true"},
        ),
    ],
)
def test_the_environment_of_the_server_is_no_text(config: Config, settings: dict[str, str]) -> None:
    assert engine_settings(config) == settings


def test_a_place_in_the_warehouse_is_free_unless_a_table_lies_there(guarded: Guarded) -> None:
    config = Config(server=LOGINS)
    warehouse = str(config.data.resolve() / "warehouse")
    for location, code in ((f"{warehouse}/x", ""), ("/etc", "ACCESS_DENIED")):
        surveyed = Surveyed(locations=(location,))
        assert reaching(guarded, surveyed, config) == code


@pytest.mark.parametrize(
    ("location", "foreign"),
    [
        ("/w/free", False),
        ("file:/w/free", False),
        ("file:///w/free", False),
        ("relative", False),
        ("../outside", True),
        ("/w/../etc", True),
        ("/etc", True),
        ("/w2/x", True),
        ("s3a://bucket/w/free", True),
        ("file:/w/taken", True),
        ("/w/taken/part", True),
        ("/w", True),
        ("/w/taken2", False),
        ("file:/w/%74aken", True),
    ],
)
def test_locations_are_compared_as_places(location: str, foreign: bool) -> None:
    assert is_foreign(location, "/w", ("file:/w/taken", "")) is foreign


def test_the_overlap_has_several_spellings() -> None:
    assert overlap("file:/w/t", "/w/t")
    assert overlap("file:///w/t/p=1", "file:/w/t")
    assert overlap("/w", "file:/w/t")
    assert not overlap("/w/t2", "/w/t")
    assert not overlap("/w/t", "")
    assert not overlap("s3a://w/t", "/w/t")


@pytest.mark.parametrize(
    ("key", "static"),
    [
        ("spark.jars", True),
        ("spark.sql.catalog.mine", True),
        ("Spark.SQL.Extensions", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.sql.variable.substitute", True),
        ("spark.sql.shuffle.partitions", False),
        ("materialized-table.initialize", False),
    ],
)
def test_settings_of_the_engines_start_are_known(key: str, static: bool) -> None:
    assert is_static(key) is static


def test_such_settings_are_denied_in_every_way_they_can_come(guarded: Guarded) -> None:
    guarded.be("bob")
    assert guarded.outcome("SET spark.sql.catalog.mine = com.example.Mine") == "ACCESS_DENIED"
    with pytest.raises(ServerError, match="administration on static-settings"):
        guarded.execute("SELECT 1", overlay={"spark.jars": "/x.jar"})
    guarded.engine.surveys["SELECT 7"] = Surveyed(settings=("spark.jars",))
    assert guarded.outcome("SELECT 7") == "ACCESS_DENIED"
    check_settings({"spark.jars": "/x.jar"}, Config(), "bob")


# ---- GRANT, REVOKE, SHOW GRANTS --------------------------------------------------------------


def test_a_grant_takes_effect_and_its_end_too(guarded: Guarded) -> None:
    guarded.execute("GRANT SELECT, REFRESH ON MATERIALIZED TABLE m TO USER bob")
    guarded.be("bob")
    assert guarded.outcome("DESCRIBE m") == ""
    assert guarded.outcome("ALTER MATERIALIZED TABLE m REFRESH") == ""
    guarded.be("ann")
    guarded.execute("REVOKE ALL ON MATERIALIZED TABLE m FROM USER bob")
    guarded.be("bob")
    assert guarded.outcome("DESCRIBE m") == "ACCESS_DENIED"


def test_schemas_are_granted_by_administrators_for_tables_to_come(guarded: Guarded) -> None:
    text = "GRANT SELECT ON SCHEMA d TO USER bob"
    assert guarded.outcome(text) == "ACCESS_DENIED"
    guarded.be("root")
    assert guarded.outcome(text) == ""
    guarded.be("ann")
    guarded.execute("CREATE MATERIALIZED TABLE later FRESHNESS = INTERVAL '1' DAY AS SELECT 1")
    guarded.be("bob")
    assert guarded.rows("SHOW MATERIALIZED TABLES") == [("later",), ("m",), ("n",)]


def test_grants_are_listed_to_those_they_concern(guarded: Guarded) -> None:
    guarded.execute("GRANT ALL ON MATERIALIZED TABLE m TO USER bob")
    guarded.execute("GRANT SELECT ON MATERIALIZED TABLE n TO USER carl")
    guarded.be("root")
    guarded.execute("GRANT ALTER ON SCHEMA d TO USER eve")
    listed = [row[:5] for row in guarded.rows("SHOW GRANTS")]
    assert listed == [
        ("eve", "ALTER", "SCHEMA", "c.d", "root"),
        ("bob", "ALTER", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("bob", "REFRESH", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("bob", "SELECT", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("carl", "SELECT", "MATERIALIZED TABLE", "c.d.n", "ann"),
    ]
    assert len(guarded.rows("SHOW GRANTS FOR USER bob")) == 3
    assert len(guarded.rows("SHOW GRANTS ON MATERIALIZED TABLE n")) == 1
    assert len(guarded.rows("SHOW GRANTS ON SCHEMA c.d")) == 1
    guarded.be("ann")
    assert {row[0] for row in guarded.rows("SHOW GRANTS")} == {"bob", "carl"}
    guarded.be("carl")
    assert {row[0] for row in guarded.rows("SHOW GRANTS")} == {"carl"}


def test_grants_end_with_their_table(guarded: Guarded) -> None:
    guarded.execute("GRANT ALL ON MATERIALIZED TABLE n TO USER bob")
    guarded.execute("DROP MATERIALIZED TABLE n")
    assert guarded.privileges.all() == ()


def test_while_nothing_is_checked_nothing_is_granted(guarded: Guarded) -> None:
    guarded.config = Config()
    assert guarded.outcome("GRANT ALL ON MATERIALIZED TABLE m TO USER bob") == "NOT_SUPPORTED"
    assert guarded.outcome("REVOKE ALL ON SCHEMA d FROM USER bob") == "NOT_SUPPORTED"
    assert guarded.rows("SHOW GRANTS") == []


def test_grants_on_what_is_no_materialized_table_are_refused_or_sparks(guarded: Guarded) -> None:
    assert guarded.outcome("GRANT ALL ON MATERIALIZED TABLE x TO USER bob") == "MT_NOT_FOUND"
    guarded.execute("GRANT SELECT ON TABLE t TO USER bob")
    assert guarded.privileges.all() == ()


# ---- refreshes run as their owner ------------------------------------------------------------


def services_with(*tables: MaterializedTable, config: Config) -> Services:
    world = World(config=config)
    catalog = MemoryCatalog()
    for table in tables:
        catalog.create(table)
    return replace(world._services(), catalog=catalog)


def test_a_refresh_needs_its_owners_right_to_read_what_it_is_made_of() -> None:
    source = Source(name=DAILY.name, kind=SourceKind.VERSIONED, table_id="x")
    reader = replace(OTHER, sources=(source,))
    config = Config(authorization=AuthorizationSection(enabled=True))
    services = services_with(DAILY, reader, config=config)
    with pytest.raises(ServerError, match="User carl needs SELECT on materialized table c.d.daily"):
        check_owner(reader.id, services)
    services.privileges.grant(grant("carl", Privilege.SELECT, TableObject(table_id=DAILY.id)))
    check_owner(reader.id, services)
    check_owner(DAILY.id, services)
    check_owner("gone", services)
    check_owner(reader.id, services_with(DAILY, reader, config=Config()))


def test_execute_as_has_refreshes_read_with_the_rights_of_another_user() -> None:
    source = Source(name=DAILY.name, kind=SourceKind.VERSIONED, table_id="x")
    reader = replace(OTHER, sources=(source,), execute_as="eve")
    config = Config(authorization=AuthorizationSection(enabled=True))
    services = services_with(DAILY, reader, config=config)
    services.privileges.grant(grant("carl", Privilege.SELECT, TableObject(table_id=DAILY.id)))
    with pytest.raises(ServerError, match="User eve needs SELECT on materialized table c.d.daily"):
        check_owner(reader.id, services)
    services.privileges.grant(grant("eve", Privilege.SELECT, TableObject(table_id=DAILY.id)))
    check_owner(reader.id, services)


DAY = "FRESHNESS = INTERVAL '1' DAY"
AS_EVE = f"CREATE OR ALTER MATERIALIZED TABLE m {DAY} EXECUTE AS USER eve AS SELECT 1"


def test_only_an_administrator_lends_the_rights_of_another_user(guarded: Guarded) -> None:
    guarded.be("ann")
    assert guarded.outcome(AS_EVE) == Code.ACCESS_DENIED.name
    assert guarded.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER eve") == "ACCESS_DENIED"
    assert guarded.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER ann") == ""
    assert guarded.table("m").execute_as == "ann"
    assert guarded.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS OWNER") == ""
    guarded.be("root")
    assert guarded.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER eve") == ""
    guarded.be("ann")
    assert guarded.outcome(AS_EVE) == ""
    assert (guarded.table("m").execute_as, guarded.table("m").owner) == ("eve", "ann")


def test_whoever_may_alter_a_table_does_not_change_whose_rights_it_uses(guarded: Guarded) -> None:
    guarded.be("root")
    guarded.execute("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER eve")
    guarded.may(Privilege.ALTER)
    guarded.be("bob")
    assert guarded.outcome(AS_EVE) == ""
    back = AS_EVE.replace("EXECUTE AS USER eve ", "")
    assert guarded.outcome(back) == Code.ACCESS_DENIED.name
    assert guarded.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER bob") == "ACCESS_DENIED"
    assert guarded.table("m").execute_as == "eve"


def test_execute_as_is_shown_wherever_a_definition_is(guarded: Guarded) -> None:
    guarded.be("root")
    guarded.execute("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER `e've`")
    [(printed,)] = guarded.rows("SHOW CREATE MATERIALIZED TABLE m")
    assert "\nEXECUTE AS USER 'e\\'ve'\n" in str(printed)
    [(text,)] = guarded.rows("DESCRIBE m AS JSON")
    assert '"execute_as":"e\'ve"' in str(text).replace(": ", ":")
