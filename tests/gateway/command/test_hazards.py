"""Statements that reach beyond tables: files, code, settings of the engine."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.gateway.command.guarded import LOGINS, Guarded
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection, Hazard
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.locations import overlap
from tidegate_server.gateway.authorization.setting_checks import check_settings, engine_settings

HAZARDS = tuple(hazard for hazard in get_args(Hazard) if hazard != "static-settings")


def using(feature: str) -> Surveyed:
    use = Access(act=Act.USE, kind=ObjectKind.FEATURE, catalog=feature, schema="something")
    return Surveyed(accesses=(use,))


def on_path(act: Act, path: str) -> Surveyed:
    return Surveyed(accesses=(Access(act=act, kind=ObjectKind.PATH, name=path),))


def reaching(world: Guarded, surveyed: Surveyed, config: Config) -> str:
    world.config = config
    world.engine.surveys["SELECT 7"] = surveyed
    world.be("bob")
    return world.outcome("SELECT 7")


@pytest.mark.parametrize("feature", [*HAZARDS, "administrators", "anything else"])
def test_what_reaches_beyond_tables_is_denied_where_logins_are_checked(
    guarded_world: Guarded, feature: str
) -> None:
    surveyed = using(feature)
    assert reaching(guarded_world, surveyed, Config(server=LOGINS)) == "ACCESS_DENIED"
    enabled = Config(authorization=AuthorizationSection(enabled=True))
    assert reaching(guarded_world, surveyed, enabled) == "ACCESS_DENIED"
    assert reaching(guarded_world, surveyed, Config()) == ""
    administrator = Config(
        server=LOGINS, authorization=AuthorizationSection(administrators=("bob",))
    )
    assert reaching(guarded_world, surveyed, administrator) == ""


@pytest.mark.parametrize("feature", HAZARDS)
def test_each_feature_can_be_allowed(guarded_world: Guarded, feature: str) -> None:
    allowed = AuthorizationSection.model_validate({"allow": [feature]})
    config = Config(server=LOGINS, authorization=allowed)
    assert reaching(guarded_world, using(feature), config) == ""
    for other in {*HAZARDS, "administrators"} - {feature}:
        assert reaching(guarded_world, using(other), config) == "ACCESS_DENIED"


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


def test_a_path_needs_its_feature(guarded_world: Guarded) -> None:
    for act, feature in ((Act.READ, "paths"), (Act.WRITE, "locations")):
        surveyed = on_path(act, "file:/somewhere")
        assert reaching(guarded_world, surveyed, Config(server=LOGINS)) == "ACCESS_DENIED"
        allowed = AuthorizationSection.model_validate({"allow": [feature]})
        config = Config(server=LOGINS, authorization=allowed)
        assert reaching(guarded_world, surveyed, config) == ""


def test_the_overlap_has_several_spellings() -> None:
    assert overlap("file:/w/t", "/w/t")
    assert overlap("file:///w/t/p=1", "file:/w/t")
    assert overlap("/w", "file:/w/t")
    assert not overlap("/w/t2", "/w/t")
    assert not overlap("/w/t", "")
    assert not overlap("s3a://w/t", "/w/t")


def test_such_settings_are_denied_in_every_way_they_can_come(guarded_world: Guarded) -> None:
    guarded_world.be("bob")
    assert guarded_world.outcome("SET spark.sql.catalog.mine = com.example.Mine") == "ACCESS_DENIED"
    with pytest.raises(ServerError, match="administration on static-settings"):
        guarded_world.execute("SELECT 1", overlay={"spark.jars": "/x.jar"})
    setting = Access(act=Act.SET, kind=ObjectKind.SETTING, name="spark.jars")
    guarded_world.engine.surveys["SELECT 7"] = Surveyed(accesses=(setting,))
    assert guarded_world.outcome("SELECT 7") == "ACCESS_DENIED"
    guarded_world.config = Config()
    check_settings({"spark.jars": "/x.jar"}, guarded_world._services(), "bob")
