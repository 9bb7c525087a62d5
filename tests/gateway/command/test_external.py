"""External locations: who may create them, what their URL may be, and what their grants allow."""

from __future__ import annotations

import pytest

from tests.gateway.command.guarded import Guarded, run_as
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName

CREATE = "CREATE EXTERNAL LOCATION landing URL 'file:/data/in'"


@pytest.fixture
def world(guarded_world: Guarded) -> Guarded:
    """A world with the external location ``landing`` of root."""
    run_as(guarded_world, "root", CREATE)
    return guarded_world


def rows_as(world: Guarded, user: str, statement: str) -> list[tuple[object, ...]]:
    world.be(user)
    return world.rows(statement)


def reaching(world: Guarded, *accesses: Access, user: str = "bob") -> str:
    """Return the error of a statement that accesses something."""
    world.engine.surveys["SELECT 7"] = Surveyed(accesses=accesses)
    world.be(user)
    try:
        world.execute("SELECT 7")
    except ServerError as problem:
        return f"{problem.message} {problem.hint}"
    return ""


def on_path(act: Act, path: str, via: str = "") -> Access:
    return Access(act=act, kind=ObjectKind.PATH, name=path, via=via)


# ---- statements ------------------------------------------------------------------------------


def test_only_administrators_create_one_and_choose_its_url(guarded_world: Guarded) -> None:
    guarded_world.be("bob")
    assert guarded_world.outcome(CREATE) == "ACCESS_DENIED"
    run_as(guarded_world, "root", CREATE, "ALTER EXTERNAL LOCATION landing SET OWNER TO USER bob")
    guarded_world.be("bob")
    moving = "ALTER EXTERNAL LOCATION landing SET URL 'file:/etc'"
    assert guarded_world.outcome(moving) == "ACCESS_DENIED"
    run_as(guarded_world, "bob", "ALTER EXTERNAL LOCATION landing RENAME TO mine")
    assert guarded_world.outcome("DROP EXTERNAL LOCATION mine") == ""
    assert guarded_world.outcome("DROP EXTERNAL LOCATION IF EXISTS mine") == ""
    assert guarded_world.outcome("DROP EXTERNAL LOCATION mine") == "OBJECT_NOT_FOUND"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data/in", "not an absolute path"),
        ("file:/data/*", "a pattern"),
        ("file:/hive/d.db/t", "overlaps the warehouse"),
        ("file:/", "overlaps the warehouse"),
        ("file:/data/in/deep", "overlaps the external location landing"),
        ("file:/data", "overlaps the external location landing"),
        ("/linked", "overlaps the external location landing"),
        ("file:/tables/m", "overlaps the directory of the materialized table"),
    ],
)
def test_a_url_must_be_of_a_directory_of_its_own(world: Guarded, url: str, reason: str) -> None:
    world.engine.links["/linked"] = "file:/data/in/deep"
    world.be("root")
    location = world.table("m").location.removeprefix("file:")
    url = url.replace("/tables/m", location)
    for text in (
        f"CREATE EXTERNAL LOCATION other URL '{url}'",
        f"ALTER EXTERNAL LOCATION other SET URL '{url}'",
    ):
        with pytest.raises(ServerError) as refused:
            world.execute(text)
        assert refused.value.code == "INVALID_LOCATION"
        assert reason in refused.value.message
        if "other" not in {row[0] for row in rows_as(world, "root", "SHOW EXTERNAL LOCATIONS")}:
            world.execute("CREATE EXTERNAL LOCATION other URL 'file:/other'")
    world.execute("ALTER EXTERNAL LOCATION landing SET URL 'file:/data/in/deep'")  # its own


def test_a_name_is_taken_once(world: Guarded) -> None:
    world.be("root")
    again = "CREATE EXTERNAL LOCATION {} URL 'file:/elsewhere'"
    assert world.outcome(again.format("Landing")) == "EXTERNAL_EXISTS"
    assert world.outcome(again.format("IF NOT EXISTS landing")) == ""
    assert world.outcome(again.format("other")) == ""
    assert world.outcome("ALTER EXTERNAL LOCATION other RENAME TO landing") == "EXTERNAL_EXISTS"


def test_it_needs_privileges_to_be_checked(guarded_world: Guarded) -> None:
    guarded_world.config = Config()
    assert guarded_world.outcome(CREATE) == "NOT_SUPPORTED"
    assert guarded_world.outcome("SHOW EXTERNAL LOCATIONS") == ""


def test_lists_show_what_was_granted(world: Guarded) -> None:
    shown = rows_as(world, "root", "SHOW EXTERNAL LOCATIONS")
    assert [row[:5] for row in shown] == [
        ("landing", "file:/data/in", "file:/data/in", "root", None)
    ]
    assert rows_as(world, "bob", "SHOW EXTERNAL LOCATIONS") == []
    assert world.outcome("DESCRIBE EXTERNAL LOCATION landing") == "ACCESS_DENIED"
    run_as(world, "root", "GRANT WRITE FILES ON EXTERNAL LOCATION landing TO USER bob")
    assert rows_as(world, "bob", "DESCRIBE EXTERNAL LOCATION landing") == shown


# ---- grants ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("privilege", "act"),
    [
        ("READ FILES", Act.READ),
        ("WRITE FILES", Act.WRITE),
        ("CREATE EXTERNAL TABLE", Act.CREATE),
    ],
)
def test_each_privilege_allows_one_act_below_the_location(
    world: Guarded, privilege: str, act: Act
) -> None:
    run_as(world, "root", f"GRANT {privilege} ON EXTERNAL LOCATION landing TO USER bob")
    for each in (Act.READ, Act.WRITE, Act.CREATE):
        denied = reaching(world, on_path(each, "file:/data/in/a"))
        assert bool(denied) == (each is not act)
        assert "external location landing" in denied or not denied
    for outside in ("file:/data/in2", "file:/data", "s3a://data/in"):
        assert reaching(world, on_path(act, outside))
    assert not reaching(world, on_path(act, "file:/data/in"))
    run_as(world, "root", f"REVOKE {privilege} ON EXTERNAL LOCATION landing FROM USER bob")
    assert reaching(world, on_path(act, "file:/data/in"))


def test_the_error_names_no_location_that_the_user_does_not_see(world: Guarded) -> None:
    inside = reaching(world, on_path(Act.READ, "file:/data/in/a"))
    outside = reaching(world, on_path(Act.READ, "file:/data/on/a"))
    assert inside == outside.replace("/on/", "/in/")
    assert "READ FILES" in inside
    assert 'authorization.allow = ["paths"]' in inside
    assert "landing" not in inside


def test_grants_decide_even_where_all_paths_are_allowed(world: Guarded) -> None:
    allowing = AuthorizationSection(enabled=True, administrators=("root",), allow=("paths",))
    world.config = Config(authorization=allowing)
    assert not reaching(world, on_path(Act.READ, "file:/elsewhere"))
    assert reaching(world, on_path(Act.READ, "file:/data/in/a"))
    assert reaching(world, on_path(Act.WRITE, "file:/elsewhere"))


def test_grants_follow_the_location_and_end_with_it(world: Guarded) -> None:
    run_as(
        world,
        "root",
        "GRANT READ FILES ON EXTERNAL LOCATION landing TO USER bob",
        "ALTER EXTERNAL LOCATION landing RENAME TO arrivals",
        "ALTER EXTERNAL LOCATION arrivals SET URL 'file:/new'",
        "ALTER EXTERNAL LOCATION arrivals SET OWNER TO USER ann",
    )
    assert not reaching(world, on_path(Act.READ, "file:/new/a"))
    assert reaching(world, on_path(Act.READ, "file:/data/in/a"))
    [grant] = rows_as(world, "ann", "SHOW GRANTS ON EXTERNAL LOCATION arrivals")
    assert grant[:4] == ("bob", "READ FILES", "EXTERNAL LOCATION", "arrivals")
    run_as(world, "ann", "DROP EXTERNAL LOCATION arrivals")
    run_as(world, "root", "CREATE EXTERNAL LOCATION arrivals URL 'file:/new'")
    assert reaching(world, on_path(Act.READ, "file:/new/a"))
    assert rows_as(world, "root", "SHOW GRANTS FOR USER bob") == []


def test_only_its_privileges_can_be_granted(world: Guarded) -> None:
    world.be("root")
    for privilege in ("SELECT", "CREATE", "USE CONNECTION"):
        text = f"GRANT {privilege} ON EXTERNAL LOCATION landing TO USER bob"
        assert world.outcome(text) == "INVALID_GRANT"
    assert world.outcome("GRANT READ FILES ON TABLE m TO USER bob") == "INVALID_GRANT"
    assert world.outcome("GRANT ALL ON EXTERNAL LOCATION landing TO USER bob") == ""
    assert not reaching(world, on_path(Act.CREATE, "file:/data/in/a"))
    world.be("root")
    world.execute("CREATE ROLE r")
    world.execute("ALTER EXTERNAL LOCATION landing SET OWNER TO ROLE r")
    assert world.outcome("DROP ROLE r") == "ROLE_OWNS_OBJECTS"


def test_a_view_reads_files_with_its_owners_privileges(world: Guarded) -> None:
    run_as(world, "root", "GRANT READ FILES ON EXTERNAL LOCATION landing TO USER ann")
    view = Access(
        act=Act.EXECUTE,
        kind=ObjectKind.FUNCTION,
        catalog=DEFAULT_CATALOG,
        schema="d",
        name="f",
    )
    world.privileges.set_function_owner(TableName(DEFAULT_CATALOG, "d", "f"), "ann")
    run_as(world, "root", "GRANT EXECUTE ON SCHEMA spark_catalog.d TO USER bob")
    via = f"{DEFAULT_CATALOG}.d.f"
    assert not reaching(world, view, on_path(Act.READ, "file:/data/in/a", via))
    run_as(world, "root", "REVOKE READ FILES ON EXTERNAL LOCATION landing FROM USER ann")
    assert reaching(world, view, on_path(Act.READ, "file:/data/in/a", via))


def test_writing_over_a_materialized_table_needs_its_ownership(world: Guarded) -> None:
    allowing = AuthorizationSection(enabled=True, allow=("paths", "locations"))
    location = world.table("m").location
    world.config = Config(authorization=allowing)
    assert "ownership" in reaching(world, on_path(Act.WRITE, location))
    assert "ownership" in reaching(world, on_path(Act.CREATE, location))
    assert "SELECT" in reaching(world, on_path(Act.READ, location))
    assert not reaching(world, on_path(Act.WRITE, location), user="ann")
