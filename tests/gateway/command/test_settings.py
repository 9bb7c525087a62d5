"""SET and RESET where users are distinguished: what a user sets and sees."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.gateway.command.fakes import World
from tests.gateway.command.guarded import LOGINS, Guarded
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Answer, Executed, Surveyed
from tidegate_server.core.messages.requests import Execute, Request
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.types import text_schema
from tidegate_server.gateway.authorization.redaction import REDACTED
from tidegate_server.gateway.options import OPTIONS

HIDDEN = ("spark.hadoop.fs.s3a.endpoint", "spark.sql.warehouse.dir", "fs.defaultFS")
LISTED = (
    ("spark.hadoop.fs.s3a.endpoint", "https://store.example.org"),
    ("spark.hadoop.fs.s3a.secret.key", "hush"),
    ("spark.redaction.regex", "zzz"),
    ("spark.sql.ansi.enabled", "true"),
    ("spark.sql.warehouse.dir", "/srv/x"),
    ("fs.defaultFS", "file:///"),
    ("my_token", "hush"),
    ("day", "1"),
)
FREE = [("spark.sql.ansi.enabled", "true"), ("my_token", REDACTED), ("day", "1")]
DENIED = (
    *(f"SET {key} = x" for key in (*HIDDEN, "spark.redaction.regex", "hive.metastore.uris")),
    *(f"SET {key}" for key in (*HIDDEN, "spark.redaction.regex", "javax.jdo.option.X")),
    *(f"RESET {key}" for key in (*HIDDEN, "spark.sql.variable.substitute")),
    "SET hiveconf:fs.defaultFS = x",
    "SET hivevar:fs.defaultFS",
    "SET 'fs.defaultFS' = 'x'",
    "SET `fs.defaultFS`=x",
    "SET a.b = 1",
    "SET spark.sql.analyzer.singlePassResolver.enabled = true",
    "SET spark.sql.debug.maxToStringFields = 1",
    "SET 'workflow-scheduler.password'",
)


def listing(rows: tuple[tuple[str, str], ...], *, verbose: bool = False) -> Executed:
    """Return the answer of Spark to SET or SET -v."""
    names = ("key", "value", "meaning", "Since version")[: 4 if verbose else 2]
    more = ("what it does", "1.0.0") if verbose else ()
    columns = list(zip(*((*row, *more) for row in rows), strict=True))
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=list(names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Executed(
        result_id="r",
        schema=text_schema(*names),
        has_result_set=True,
        chunks=0,
        rows=len(rows),
        current_catalog="spark_catalog",
        current_schema="d",
        inline=sink.getvalue().to_pybytes(),
    )


def knows_settings(world: World) -> World:
    """Let the engine answer SET as Spark does, hiding nothing."""
    inner = world.engine.call

    def call(request: Request, **options: object) -> Answer:
        answer = inner(request, **options)  # type: ignore[arg-type]
        if not isinstance(request, Execute) or not request.sql.upper().startswith("SET"):
            return answer
        sql = request.sql.replace("`", "")
        key, given, value = sql[4:].partition("=")
        found = tuple(row for row in LISTED if row[0] == key)
        if given:
            return listing(((key, value),))
        return listing(found or LISTED, verbose="-v" in sql)

    world.engine.call = call  # type: ignore[method-assign]
    return world


def with_options(config: Config) -> Config:
    options = {"execution.mode": "embedded", "workflow-scheduler.password": "hush"}
    return config.model_copy(update={"options": options})


def denied(world: Guarded, text: str) -> str:
    """Return the message and the hint of a statement that is denied before it reaches Spark."""
    world.engine.requests.clear()
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    assert caught.value.code == "ACCESS_DENIED"
    assert not world.engine.requests_of(Execute)
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("text", DENIED)
def test_what_is_not_free_is_denied_before_spark_sees_it(guarded_world: Guarded, text: str) -> None:
    guarded_world.be("bob")
    message = denied(guarded_world, text)
    assert 'authorization.allow = ["static-settings"]' in message
    guarded_world.config = Config(server=LOGINS)
    denied(guarded_world, text)
    guarded_world.be("root")
    guarded_world.config = Config(
        server=LOGINS, authorization=AuthorizationSection(administrators=("root",))
    )
    assert guarded_world.outcome(text) == ""


def test_the_error_suggests_what_was_meant(guarded_world: Guarded) -> None:
    guarded_world.be("bob")
    message = denied(guarded_world, "SET spark.sql.shuffle.partition = 3")
    assert "Did you mean spark.sql.shuffle.partitions?" in message
    assert "Variables have names without dots." in denied(guarded_world, "SET my.day = 1")


def test_a_mistaken_option_of_tidegate_keeps_its_own_error(guarded_world: Guarded) -> None:
    guarded_world.be("bob")
    assert guarded_world.outcome("SET constraint.enforce = fail") == "MT_OPTION_VALUE"
    assert guarded_world.outcome("SET 'refresh.retries' = '1'") == "MT_OPTION_VALUE"
    assert guarded_world.outcome("SET 'materialized-table.x' = '1'") == "MT_OPTION_UNKNOWN"


@pytest.mark.parametrize("key", ["spark.sql.ansi.enabled", "day", "hivevar:day", "execution.mode"])
def test_what_is_free_is_set_and_seen(guarded_world: Guarded, key: str) -> None:
    guarded_world.be("bob")
    for text in (f"SET {key} = embedded", f"SET {key}", f"RESET {key}"):
        assert guarded_world.outcome(text) == ""


def test_a_list_holds_what_the_user_may_see(guarded_world: Guarded) -> None:
    world = knows_settings(guarded_world)
    world.config = with_options(world.config)
    world.be("bob")
    assert world.rows("SET") == [("execution.mode", "embedded"), *FREE]
    verbose = [(*row, "what it does", "1.0.0") for row in FREE]
    listed = world.rows("SET -v")
    assert [row for row in listed if row[0] not in OPTIONS] == verbose
    assert ("execution.mode", "embedded") in [row[:2] for row in listed]
    # Forms of SET that only Spark can read have the same rows, if any.
    assert world.rows("SET CATALOG IDENTIFIER('x')") == FREE


def test_an_administrator_sees_all_but_the_secrets(guarded_world: Guarded) -> None:
    world = knows_settings(guarded_world)
    world.config = with_options(world.config)
    world.be("root")
    secret = {"spark.hadoop.fs.s3a.secret.key", "my_token"}
    theirs = [(key, REDACTED if key in secret else value) for key, value in LISTED]
    ours = [("execution.mode", "embedded"), ("workflow-scheduler.password", REDACTED)]
    assert world.rows("SET") == [*ours, *theirs]
    assert world.rows("SET spark.hadoop.fs.s3a.secret.key") == [theirs[1]]
    assert world.rows("SET 'workflow-scheduler.password'") == [ours[1]]
    assert world.rows("SET spark.hadoop.fs.s3a.secret.key = x") == [theirs[1]]
    assert world.rows("SET spark.redaction.regex = zzz") == [("spark.redaction.regex", "zzz")]
    assert "hush" not in repr(world.rows("SET -v"))


def test_secrets_are_hidden_where_users_are_not_distinguished(world: World) -> None:
    knows_settings(world)
    shown = dict(world.rows("SET"))
    assert shown["spark.hadoop.fs.s3a.secret.key"] == REDACTED
    assert shown["spark.hadoop.fs.s3a.endpoint"] == "https://store.example.org"


def test_static_settings_can_be_opened_to_everybody(guarded_world: Guarded) -> None:
    allowed = AuthorizationSection(enabled=True, allow=("static-settings",))
    guarded_world.config = Config(authorization=allowed)
    knows_settings(guarded_world).be("bob")
    for text in DENIED:
        assert guarded_world.outcome(text) == "", text
    assert dict(guarded_world.rows("SET"))["spark.sql.warehouse.dir"] == "/srv/x"


@pytest.mark.parametrize("key", ["fs.defaultFS", "spark.redaction.regex", "spark.sql.x"])
def test_settings_of_one_statement_are_judged(guarded_world: Guarded, key: str) -> None:
    guarded_world.be("bob")
    guarded_world.engine.requests.clear()
    with pytest.raises(ServerError, match="administration on static-settings"):
        guarded_world.execute("SELECT 1", overlay={key: "x"})
    assert not guarded_world.engine.requests
    guarded_world.execute("SELECT 1", overlay={"spark.sql.ansi.enabled": "false", "day": "1"})


def accessing(act: Act, *keys: str) -> Surveyed:
    accesses = [Access(act=act, kind=ObjectKind.SETTING, name=key) for key in keys]
    return Surveyed(accesses=tuple(accesses))


def test_settings_of_refreshes_are_judged(guarded_world: Guarded) -> None:
    guarded_world.be("ann")
    resume = "ALTER MATERIALIZED TABLE m RESUME WITH ('{}' = 'true')"
    guarded_world.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    denied(guarded_world, resume.format("spark.sql.runSQLOnFiles"))
    assert guarded_world.outcome(resume.format("spark.sql.ansi.enabled")) == ""


def test_settings_that_the_engine_finds_in_a_statement_are_judged(guarded_world: Guarded) -> None:
    guarded_world.be("bob")
    for act in (Act.SET, Act.SHOW):
        guarded_world.engine.surveys["SELECT 7"] = accessing(act, "fs.defaultFS")
        denied(guarded_world, "SELECT 7")
        guarded_world.engine.surveys["SELECT 7"] = accessing(act, "spark.sql.ansi.enabled", "a", "")
        assert guarded_world.outcome("SELECT 7") == ""
