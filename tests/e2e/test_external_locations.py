"""External locations on a real server: what their grants allow, and whose tables are in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as

pytestmark = [pytest.mark.faults, pytest.mark.thorough(4)]  # the server with authorization

USERS = ("ann", "bob", "carl")


@pytest.fixture(scope="module")
def files(mounted: Path) -> Path:
    for name in ("one", "two"):
        (mounted / name).mkdir()
        (mounted / name / "a.csv").write_text(f"1,{name}\n")
    return mounted


@pytest.fixture(scope="module")
def server(guarded_server: Server, files: Path) -> Iterator[Server]:
    """A server with a location of which bob may read the files; ann may do everything."""
    run_as(
        guarded_server,
        "root",
        f"CREATE EXTERNAL LOCATION landing URL '{files}'",
        "GRANT READ FILES ON EXTERNAL LOCATION landing TO USER bob",
        "GRANT ALL ON EXTERNAL LOCATION landing TO USER ann",
        "GRANT ALL ON EXTERNAL LOCATION landing TO USER carl",
    )
    for user in USERS:
        run_as(guarded_server, user, f"CREATE SCHEMA {user}")
    yield guarded_server
    dropped = (f"DROP SCHEMA IF EXISTS {user} CASCADE" for user in (*USERS, "eve"))
    run_as(guarded_server, "root", *dropped, "DROP EXTERNAL LOCATION landing")


def refused(server: Server, user: str, *statements: str) -> str:
    """Return the message of the error with which the last statement must end."""
    run_as(server, user, *statements[:-1])
    with pytest.raises(tidegate.Error, match="ACCESS_DENIED") as caught:
        run_as(server, user, statements[-1])
    return str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM csv.`{files}/one`",
        "SELECT * FROM csv.`file:{files}/one/a.csv`",
        "SELECT * FROM csv.`{files}/two/../one`",
        "SELECT * FROM csv.`{files}/{one,none}/*.csv`",
        "SELECT * FROM csv.`viewfs://cluster/mounted/one`",
        "SELECT * FROM read_files('{files}/one', format => 'csv', schema => 'a STRING, b STRING')",
        "EXECUTE IMMEDIATE \"SELECT '1', _c1 FROM read_files('{files}/one', format => 'csv')\"",
        "SELECT * FROM IDENTIFIER('csv.' || '`{files}/one`')",
        "EXECUTE IMMEDIATE 'SELECT * FROM csv.`{files}/one`'",
        "BEGIN SELECT * FROM csv.`{files}/one`; END",
    ],
)
def test_a_path_below_a_location_is_read_however_it_is_written(
    server: Server, files: Path, query: str
) -> None:
    text = query.replace("{files}", str(files))
    assert run_as(server, "bob", text) == [("1", "one")]
    assert "needs READ FILES on path file:" in refused(server, "eve", text)


def test_an_error_after_the_analysis_does_not_come_before_the_denial(
    server: Server, files: Path
) -> None:
    """Spark's error would name the columns, which are read from the file."""
    text = f"SELECT nope FROM csv.`{files}/one`"
    with pytest.raises(tidegate.Error, match="_c0"):
        run_as(server, "bob", text)
    assert "_c0" not in refused(server, "eve", text)


def test_each_statement_needs_its_privilege(server: Server, files: Path) -> None:
    written = f"INSERT OVERWRITE DIRECTORY '{files}/out' USING csv SELECT 2, 'out'"
    created = f"CREATE TABLE {{}}.placed (a INT, b STRING) USING csv LOCATION '{files}/out'"
    optional = f"CREATE TABLE bob.placed USING csv OPTIONS (path '{files}/out')"
    assert "WRITE FILES on external location landing" in refused(server, "bob", written)
    for text in (created.format("bob"), optional):
        assert "CREATE EXTERNAL TABLE on external location landing" in refused(server, "bob", text)
    run_as(server, "ann", written, created.format("ann"))
    run_as(server, "ann", "GRANT SELECT ON TABLE ann.placed TO USER eve")
    assert run_as(server, "eve", "SELECT * FROM ann.placed") == [(2, "out")]
    temporary = f"CREATE TEMPORARY VIEW t USING csv OPTIONS (path '{files}/one')"
    assert run_as(server, "bob", temporary, "SELECT * FROM t") == [("1", "one")]
    run_as(server, "ann", "DROP TABLE ann.placed")
    shutil.rmtree(files / "out")


def test_a_table_over_files_is_read_with_the_rights_of_its_owner(
    server: Server, files: Path
) -> None:
    read = f"read_files('{files}/one', format => 'csv')"
    run_as(
        server,
        "ann",
        "CREATE TABLE ann.over (a INT, b STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{files}/one', 'format' = 'csv')",
        f"CREATE VIEW ann.beside AS SELECT * FROM {read}",
        "GRANT SELECT ON VIEW ann.over TO USER eve",
        "GRANT SELECT ON VIEW ann.beside TO USER eve",
    )
    for name in ("over", "beside"):
        assert run_as(server, "eve", f"SELECT * FROM ann.{name}") == [(1, "one")]
        assert "SELECT on view" in refused(server, "bob", f"SELECT * FROM ann.{name}")
    for text in (
        f"CREATE VIEW eve.v AS SELECT * FROM {read}",
        f"CREATE TEMPORARY VIEW v AS SELECT * FROM {read}",
        f"CREATE TABLE eve.t WITH ('connector' = 'filesystem', 'path' = '{files}/one', "
        "'format' = 'csv')".replace("eve.t ", "eve.t (a INT) "),
        f"CREATE FUNCTION eve.f() RETURNS INT RETURN (SELECT max(_c0) FROM {read})",
    ):
        run_as(server, "eve", "CREATE SCHEMA IF NOT EXISTS eve")
        assert "READ FILES on path" in refused(server, "eve", text)
    topic = "SELECT * FROM read_kafka(bootstrapServers => '127.0.0.1:1', subscribe => 't')"
    for user in ("ann", "eve"):
        assert "kafka://127.0.0.1:1/t" in refused(server, user, topic)
    run_as(server, "ann", "REVOKE SELECT ON VIEW ann.over FROM USER eve")
    assert "SELECT on view" in refused(server, "eve", "SELECT * FROM ann.over")


def test_a_connectors_table_is_written_with_the_rights_of_its_owner(
    server: Server, files: Path
) -> None:
    create = "CREATE {} TABLE {} (id INT) WITH ('connector' = 'filesystem', 'path' = '{}/{}', "
    create += "'format' = 'json')"
    insert = "INSERT INTO {} VALUES (1)"
    for user in ("ann", "carl"):
        run_as(
            server,
            user,
            create.format("", f"{user}.sunk", files, f"of_{user}"),
            f"GRANT MODIFY ON VIEW {user}.sunk TO USER eve",
            "CREATE TABLE nothing (id INT) WITH ('connector' = 'blackhole')",
            "INSERT INTO nothing VALUES (1)",
            "DROP TABLE nothing",
        )
    run_as(server, "eve", insert.format("ann.sunk"), "INSERT OVERWRITE ann.sunk SELECT 2")
    assert run_as(server, "ann", "SELECT * FROM ann.sunk") == [(2,)]
    assert "SELECT on view" in refused(server, "eve", "SELECT * FROM ann.sunk")
    assert "MODIFY on view" in refused(server, "bob", insert.format("ann.sunk"))
    run_as(server, "bob", create.format("", "bob.sunk", files, "of_bob"))
    assert "WRITE FILES on external location" in refused(server, "bob", insert.format("bob.sunk"))
    temporary = create.format("TEMPORARY", "t", files, "of_bob")
    with pytest.raises(tidegate.Error, match="WRITE FILES on external location"):
        run_as(server, "bob", temporary, insert.format("t"))
    assert not (files / "of_bob").exists()
    run_as(server, "carl", create.format("TEMPORARY", "t", files, "of_carl"), insert.format("t"))
    run_as(server, "root", "REVOKE WRITE FILES ON EXTERNAL LOCATION landing FROM USER carl")
    refused(server, "eve", insert.format("carl.sunk"))
    run_as(server, "root", "GRANT ALL ON EXTERNAL LOCATION landing TO USER carl")
    run_as(server, "eve", insert.format("carl.sunk"))
    run_as(
        server,
        "ann",
        f"CREATE TABLE ann.t USING delta LOCATION '{files}/anns' AS SELECT 'hush' AS a",
        "GRANT SELECT ON TABLE ann.t TO USER carl",
        "GRANT ALTER ON VIEW ann.sunk TO USER carl",
    )
    over = create.format("", "carl.over", files, "anns/in")
    said = refused(server, "carl", over, insert.format("carl.over"))
    assert "ownership on table spark_catalog.ann.t" in said
    forged = {
        "kafka": '"options": {"kafka.bootstrap.servers": "b:1", "topic": "t"}',
        "filesystem": f'"path": "{files}/of_ann", "format": "parquet", "options": {{"fs.x": "y"}}',
    }
    for connector, what in (("kafka", "kafka://b:1/t"), ("filesystem", "property fs.x")):
        said = f'"connector": "{connector}", "columns": "id INT", "expressions": ["id"]'
        text = f"SELECT /* connector={connector} {{{said}, {forged[connector]}}} */ 1 AS id"
        view = f"CREATE OR REPLACE VIEW ann.forged AS {text}"
        assert what in refused(server, "ann", view, insert.format("ann.forged"))
        assert "ownership on view" in refused(server, "carl", f"ALTER VIEW ann.sunk AS {text}")
    for user in ("ann", "bob", "carl"):
        run_as(server, user, f"DROP TABLE {user}.sunk")
    run_as(server, "ann", "DROP TABLE ann.t", "DROP VIEW ann.forged")
    run_as(server, "carl", "DROP TABLE carl.over")
    for name in ("of_ann", "of_carl", "anns"):
        shutil.rmtree(files / name)


def test_a_delta_table_is_read_and_changed_by_its_path(server: Server, files: Path) -> None:
    name = f"delta.`{files}/delta`"
    run_as(
        server, "ann", f"CREATE TABLE {name} (a INT) USING delta", f"INSERT INTO {name} VALUES (1)"
    )
    assert run_as(server, "bob", f"SELECT * FROM {name}") == [(1,)]
    for text in (
        f"INSERT INTO {name} VALUES (2)",
        f"DELETE FROM {name}",
        f"VACUUM '{files}/delta'",
    ):
        assert "WRITE FILES on external location landing" in refused(server, "bob", text)
    outside = f"CREATE TABLE delta.`{files.parent}/elsewhere` (a INT) USING delta"
    assert "CREATE EXTERNAL TABLE on path" in refused(server, "ann", outside)
    shutil.rmtree(files / "delta")


def test_the_log_of_a_delta_table_leads_nowhere_else(server: Server, files: Path) -> None:
    """A clone names the files of its source, which are in the warehouse."""
    run_as(
        server,
        "root",
        "CREATE TABLE cloned USING delta AS SELECT 'hush' AS a",
        f"CREATE TABLE delta.`{files}/clone` SHALLOW CLONE cloned",
    )
    text = f"SELECT * FROM delta.`{files}/clone`"
    assert run_as(server, "root", text) == [("hush",)]
    assert "hush" not in refused(server, "bob", text)
    run_as(server, "root", "DROP TABLE cloned")
    shutil.rmtree(files / "clone")


def test_a_view_over_files_reads_with_its_owners_privileges(server: Server, files: Path) -> None:
    run_as(
        server,
        "bob",
        f"CREATE VIEW bob.filed AS SELECT * FROM csv.`{files}/one`",
        "GRANT SELECT ON VIEW bob.filed TO USER eve",
    )
    assert run_as(server, "eve", "SELECT * FROM bob.filed") == [("1", "one")]
    run_as(server, "root", "REVOKE READ FILES ON EXTERNAL LOCATION landing FROM USER bob")
    refused(server, "eve", "SELECT * FROM bob.filed")
    run_as(server, "root", "GRANT READ FILES ON EXTERNAL LOCATION landing TO USER bob")
    run_as(server, "bob", "DROP VIEW bob.filed")


def test_refreshes_read_files_as_long_as_their_owner_may(server: Server, files: Path) -> None:
    table = "CREATE MATERIALIZED TABLE bob.{} FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM "
    stream = f"STREAM read_files('{files}/t*', format => 'csv', schema => 'a INT, b STRING')"
    run_as(server, "bob", table.format("m") + f"csv.`{files}/two`", table.format("s") + stream)
    assert run_as(server, "bob", "SELECT * FROM bob.s") == [(1, "two")]
    (files / "two" / "b.csv").write_text("2,two\n")
    refresh = "ALTER MATERIALIZED TABLE bob.{} REFRESH"
    run_as(server, "bob", refresh.format("m"), refresh.format("s"))
    assert len(run_as(server, "bob", "SELECT * FROM bob.m")) == 2
    assert len(run_as(server, "bob", "SELECT * FROM bob.s")) == 2
    link = files / "two" / "c.csv"
    link.symlink_to(server.data / "store.db")
    assert "store.db" in refused(server, "bob", refresh.format("m"))
    refused(server, "bob", refresh.format("s"))
    link.unlink()
    run_as(server, "root", "REVOKE READ FILES ON EXTERNAL LOCATION landing FROM USER bob")
    (files / "two" / "d.csv").write_text("3,two\n")
    for name in ("m", "s"):
        refused(server, "bob", refresh.format(name))
    run_as(server, "root", "GRANT READ FILES ON EXTERNAL LOCATION landing TO USER bob")
    run_as(server, "bob", "DROP MATERIALIZED TABLE bob.m", "DROP MATERIALIZED TABLE bob.s")


def test_links_are_followed_when_the_location_is_created(server: Server, files: Path) -> None:
    """Whoever changes a link later does not move the location."""
    link = files.parent / "current"
    link.symlink_to(files)
    with pytest.raises(tidegate.Error, match="overlaps the external location landing"):
        run_as(server, "root", f"CREATE EXTERNAL LOCATION current URL '{link}'")
    link.unlink()
    (files.parent / "first").mkdir()
    link.symlink_to(files.parent / "first")
    run_as(
        server,
        "root",
        f"CREATE EXTERNAL LOCATION current URL '{link}'",
        "GRANT READ FILES ON EXTERNAL LOCATION current TO USER eve",
    )
    [row] = run_as(server, "root", "DESCRIBE EXTERNAL LOCATION current")
    assert row[1:3] == (str(link), f"file:{files.parent / 'first'}")
    link.unlink()
    link.symlink_to(server.data)
    refused(server, "eve", f"SELECT * FROM text.`{link}/store.db`")
    run_as(server, "root", "DROP EXTERNAL LOCATION current")


# ---- tables of other owners ------------------------------------------------------------------


def test_a_path_to_a_table_needs_the_right_on_the_table(server: Server, files: Path) -> None:
    run_as(
        server,
        "ann",
        f"CREATE TABLE ann.t USING delta LOCATION '{files}/anns' AS SELECT 'hush' AS a",
    )
    path = f"delta.`{files}/anns`"
    for text in (
        f"SELECT * FROM {path}",
        f"SELECT * FROM parquet.`{files}/anns/*.parquet`",
        f"SELECT * FROM text.`{files}`",
        f"DESCRIBE HISTORY {path}",
    ):
        assert "SELECT on table spark_catalog.ann.t" in refused(server, "carl", text)
    placed = f"CREATE TABLE carl.t USING delta LOCATION '{files}/anns'"
    over = f"INSERT OVERWRITE DIRECTORY '{files}/anns/x' USING csv SELECT 1"
    inside = f"CREATE TABLE carl.t (a INT) USING csv LOCATION '{files}/anns/in'"
    for text in (placed, over, inside):
        assert "ownership on table spark_catalog.ann.t" in refused(server, "carl", text)
    run_as(server, "ann", "GRANT SELECT ON TABLE ann.t TO USER carl")
    assert run_as(server, "carl", f"SELECT * FROM {path}") == [("hush",)]
    written = f"INSERT INTO {path} VALUES ('x')"
    for text in (placed, over, written):
        assert "ownership on table spark_catalog.ann.t" in refused(server, "carl", text)
    run_as(server, "ann", written, "DROP TABLE ann.t")
    shutil.rmtree(files / "anns")


def test_a_directory_that_became_another_ones_is_noticed(server: Server, files: Path) -> None:
    """The directory of carl's table is replaced by a link to that of ann's."""
    create = "CREATE TABLE {0}.moved (a STRING) USING csv LOCATION '{1}/{0}s'"
    for user in ("ann", "carl"):
        (files / f"{user}s").mkdir()
        (files / f"{user}s" / "a.csv").write_text(f"of {user}\n")
        run_as(server, user, create.format(user, files))
    assert run_as(server, "carl", "SELECT * FROM carl.moved") == [("of carl",)]
    shutil.rmtree(files / "carls")
    (files / "carls").symlink_to(files / "anns")
    denied = refused(server, "carl", "SELECT * FROM carl.moved")
    assert "SELECT on table spark_catalog.ann.moved" in denied
    denied = refused(server, "carl", "INSERT INTO carl.moved VALUES ('x')")
    assert "ownership on table spark_catalog.ann.moved" in denied
    assert run_as(server, "ann", "SELECT * FROM ann.moved") == [("of ann",)]
    run_as(server, "root", "DROP TABLE ann.moved", "DROP TABLE carl.moved")
    (files / "carls").unlink()
    shutil.rmtree(files / "anns")
