"""Statements that reach beyond tables: files, code, settings of the engine."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.gateway.command.guarded import LOGINS, Guarded
from tidegate_server.core.config import AuthorizationSection, Config, Hazard
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Reach, Surveyed
from tidegate_server.gateway.authorization.admission import (
    check_settings,
    engine_settings,
)
from tidegate_server.gateway.authorization.rights import (
    is_foreign,
    is_static,
    overlap,
)


def test_every_reach_but_the_unknown_can_be_allowed_by_name() -> None:
    assert {reach.value for reach in Reach} - {"unknown"} == set(get_args(Hazard))


def reaching(world: Guarded, surveyed: Surveyed, config: Config) -> str:
    world.config = config
    world.engine.surveys["SELECT 7"] = surveyed
    world.be("bob")
    return world.outcome("SELECT 7")


@pytest.mark.parametrize("reach", Reach)
def test_what_reaches_beyond_tables_is_denied_where_logins_are_checked(
    guarded_world: Guarded, reach: Reach
) -> None:
    surveyed = Surveyed(reaches=(reach,))
    assert reaching(guarded_world, surveyed, Config(server=LOGINS)) == "ACCESS_DENIED"
    enabled = Config(authorization=AuthorizationSection(enabled=True))
    assert reaching(guarded_world, surveyed, enabled) == "ACCESS_DENIED"
    assert reaching(guarded_world, surveyed, Config()) == ""
    administrator = Config(
        server=LOGINS, authorization=AuthorizationSection(administrators=("bob",))
    )
    assert reaching(guarded_world, surveyed, administrator) == ""


@pytest.mark.parametrize("reach", [reach for reach in Reach if reach is not Reach.UNKNOWN])
def test_each_reach_can_be_allowed(guarded_world: Guarded, reach: Reach) -> None:
    allowed = AuthorizationSection.model_validate({"allow": [reach.value]})
    config = Config(server=LOGINS, authorization=allowed)
    assert reaching(guarded_world, Surveyed(reaches=(reach,)), config) == ""
    others = tuple(other for other in Reach if other is not reach)
    for other in others:
        assert reaching(guarded_world, Surveyed(reaches=(other,)), config) == "ACCESS_DENIED"


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


def test_a_place_in_the_warehouse_is_free_unless_a_table_lies_there(guarded_world: Guarded) -> None:
    config = Config(server=LOGINS)
    warehouse = str(config.data.resolve() / "warehouse")
    for location, code in ((f"{warehouse}/x", ""), ("/etc", "ACCESS_DENIED")):
        surveyed = Surveyed(locations=(location,))
        assert reaching(guarded_world, surveyed, config) == code


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


def test_such_settings_are_denied_in_every_way_they_can_come(guarded_world: Guarded) -> None:
    guarded_world.be("bob")
    assert guarded_world.outcome("SET spark.sql.catalog.mine = com.example.Mine") == "ACCESS_DENIED"
    with pytest.raises(ServerError, match="administration on static-settings"):
        guarded_world.execute("SELECT 1", overlay={"spark.jars": "/x.jar"})
    guarded_world.engine.surveys["SELECT 7"] = Surveyed(settings=("spark.jars",))
    assert guarded_world.outcome("SELECT 7") == "ACCESS_DENIED"
    guarded_world.config = Config()
    check_settings({"spark.jars": "/x.jar"}, guarded_world._services(), "bob")
