"""Settings that Spark refuses, and files that are not there, are errors and never passed over."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.engine.conftest import Client, Session
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import SettingsChecked
from tidegate_server.core.messages.requests import CheckSettings, OpenSession

pytestmark = pytest.mark.spark

BAD: tuple[tuple[Mapping[str, str], str], ...] = (
    ({"spark.sql.session.timeZone": "Nowhere/Bad"}, "INVALID_CONF_VALUE.TIME_ZONE"),
    ({"spark.sql.shuffle.partitions": "many"}, "INVALID_CONF_VALUE.TYPE_MISMATCH"),
    ({"spark.sql.warehouse.dir": "/x"}, "CANNOT_MODIFY_STATIC_CONFIG"),
    ({"spark.driver.memory": "8g"}, "CANNOT_MODIFY_CONFIG"),
)


@pytest.mark.parametrize(("settings", "code"), BAD)
def test_a_setting_is_refused_alike_wherever_it_comes_from(
    session: Session, client: Client, settings: Mapping[str, str], code: str
) -> None:
    [(key, value)] = settings.items()
    said = session.failure(f"SET `{key}`=`{value}`")
    assert said.code == code
    opened = OpenSession(session_id=str(uuid.uuid4()), settings=settings)
    for request in (CheckSettings(settings=settings), opened):
        with pytest.raises(ServerError) as caught:
            client.call(request)
        assert (caught.value.code, caught.value.message) == (said.code, said.message)
    alone = session.failure("SELECT 1", settings=settings)
    assert (alone.code, alone.message) == (said.code, said.message)
    assert session.rows("SELECT 1 AS n") == [(1,)]


def test_a_refused_setting_leaves_the_others_of_the_statement_as_they_were(
    session: Session,
) -> None:
    settings = {"spark.sql.ansi.enabled": "false", "spark.sql.shuffle.partitions": "many"}
    session.failure("SELECT 1", settings=settings)
    assert session.rows("SET spark.sql.ansi.enabled") == [("spark.sql.ansi.enabled", "true")]


@pytest.mark.parametrize(
    ("key", "similar"),
    [
        ("spark.sql.shuffle.partition", "spark.sql.shuffle.partitions"),
        (
            "spark.databricks.delta.schema.automerge.enabled",
            "spark.databricks.delta.schema.autoMerge.enabled",
        ),
        ("spark.sql.ansi.enabled", None),
        ("spark.hadoop.fs.s3a.access.keys", None),
        ("spark.databricks.delta.properties.defaults.appendOnly", None),
        ("spark.mine.alone", None),
    ],
)
def test_a_name_that_spark_does_not_know_is_answered_with_the_nearest(
    client: Client, key: str, similar: str | None
) -> None:
    answer = client.call(CheckSettings(settings={key: "true"}))
    assert answer == SettingsChecked(similar={key: similar} if similar else {})


@pytest.mark.parametrize("kind", ["JAR", "FILE", "ARCHIVE", "JARS"])
def test_a_resource_that_is_missing_is_an_error(session: Session, kind: str) -> None:
    failed = session.failure(f"add {kind} /nowhere/x.jar")
    assert failed.code == "RESOURCE_NOT_FOUND"
    assert failed.message == f"ADD {kind.rstrip('S')}: there is no file /nowhere/x.jar."


def test_each_of_several_resources_has_to_be_there(session: Session, tmp_path: Path) -> None:
    there = tmp_path / "a b.txt"
    there.write_text("x")
    session.execute(f"ADD FILE '{there}'")
    assert [Path(str(row[0])).name for row in session.rows("LIST FILES")] == ["a%20b.txt"]
    failed = session.failure(f"ADD FILES '{there}' '{tmp_path}/other.txt'")
    assert failed.message == f"ADD FILE: there is no file {tmp_path}/other.txt."
