"""How the lists of what plans may contain are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tidegate_server.engine.gate import tables
from tidegate_server.engine.gate.tables import Act, Action, Condition, Kind, Need

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_COMMAND = "org.apache.spark.sql.execution.command"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"


@pytest.mark.parametrize(
    ("name", "need"),
    [
        (f"{_EXPRESSIONS}.Abs", Need.FREE),
        (f"{_EXPRESSIONS}.CallMethodViaReflection", Need.JAR_FUNCTIONS),
        (f"{_EXPRESSIONS}.PythonUDF", Need.SCRIPTS),
        (f"{_EXPRESSIONS}.XmlToStructs", Need.OPTIONS),
        (f"{_EXPRESSIONS}.FromProtobuf", Need.PATHS),
        (f"{_EXPRESSIONS}.objects.NewInstance", Need.INTERNAL),
        (f"{_LOGICAL}.MergeRows$Keep", Need.FREE),
        (f"{_LOGICAL}.Project", Need.FREE),
        (f"{_LOGICAL}.Call", Need.ADMINISTRATORS),
        (f"{_LOGICAL}.ScriptTransformation", Need.SCRIPTS),
        ("org.apache.spark.sql.execution.datasources.LogicalRelation", Need.RELATIONS),
        ("org.apache.spark.sql.catalyst.analysis.ResolvedTable", Need.OBJECTS),
        ("org.apache.spark.sql.catalyst.analysis.UnresolvedRelation", Need.UNRESOLVED),
    ],
)
def test_a_class_has_a_need(name: str, need: Need) -> None:
    assert tables.class_needs()[name] is need


def test_a_command_is_not_listed_twice() -> None:
    assert not tables.command_rows().keys() & tables.class_needs().keys()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        (f"{_COMMAND}.DropTableCommand", {"tableName": (Act(action=Action.OWN),)}),
        (
            f"{_COMMAND}.DropDatabaseCommand",
            {"databaseName": (Act(action=Action.OWN, kind=Kind.SCHEMA),)},
        ),
        (
            f"{_COMMAND}.AddJarsCommand",
            {"": (Act(action=Action.FEATURE, need=Need.RESOURCES),)},
        ),
        (f"{_COMMAND}.SetCommand", {"": (Act(action=Action.SET, kind=Kind.SETTING),)}),
        (
            f"{_LOGICAL}.DropPartitions",
            {"table": (Act(action=Action.ALTER), Act(action=Action.MODIFY))},
        ),
    ],
)
def test_a_command_does_something_to_the_objects_in_its_fields(
    name: str, row: Mapping[str, tuple[Act, ...]]
) -> None:
    assert tables.command_rows()[name] == row


def test_an_act_may_depend_on_another_field() -> None:
    replacing = Condition("replace", present=True)
    assert tables.command_rows()[f"{_COMMAND}.CreateViewCommand"]["name"] == (
        Act(action=Action.CREATE, kind=Kind.VIEW),
        Act(action=Action.OWN, condition=replacing),
    )
    insert = "org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand"
    assert tables.command_rows()[insert]["outputPath"] == (
        Act(
            action=Action.WRITE,
            kind=Kind.PATH,
            condition=Condition("catalogTable", present=False),
        ),
    )


def test_features_that_a_command_uses_belong_to_no_field() -> None:
    for name, row in tables.command_rows().items():
        for field, acts in row.items():
            for act in acts:
                assert (act.action is Action.FEATURE) == (act.need is not None), name
                assert act.need is None or not field, name


@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("reflect", Need.JAR_FUNCTIONS),
        ("from_xml", Need.OPTIONS),
        ("from_protobuf", Need.PATHS),
        ("table_changes_by_path", Need.PATHS),
        ("python_worker_logs", Need.ADMINISTRATORS),
    ],
)
def test_some_functions_are_guarded(name: str, need: Need) -> None:
    assert tables.guarded_functions()[name] is need


def test_most_functions_are_free() -> None:
    assert tables.function_needs()["abs"] is Need.FREE
    assert "abs" not in tables.guarded_functions()


def test_sources_have_short_names() -> None:
    source = tables.sources()[
        "org.apache.spark.sql.execution.datasources.jdbc.JdbcRelationProvider"
    ]
    assert source.need is Need.CONNECTIONS
    assert source.short_names == ("jdbc",)


def test_formats_that_read_other_files_are_not_allowed() -> None:
    formats = tables.hive_formats()
    assert "org.apache.hadoop.hive.serde2.OpenCSVSerde" in formats.serdes
    assert "org.apache.hadoop.mapred.TextInputFormat" in formats.input_formats
    assert "org.apache.hadoop.mapred.TextOutputFormat" in formats.output_formats
    assert not any("Symlink" in name for name in formats.input_formats)


@pytest.mark.parametrize(
    ("key", "value", "need"),
    [
        ("owner-team", "sales", Need.FREE),
        ("delta.enableChangeDataFeed", "true", Need.FREE),
        ("Serialization.Lib", "a.SerDe", Need.JAR_FUNCTIONS),
        ("avro.schema.url", "http://example.org", Need.PATHS),
        ("delta.redirectReaderWriter-preview", "{}", Need.PATHS),
        ("delta.coordinatedCommits.commitCoordinator-preview", "x", Need.CONNECTIONS),
        ("tidegate.id", "x", Need.ADMINISTRATORS),
        ("location", "/srv", Need.LOCATIONS),
        ("option.header", "true", Need.FREE),
        ("OPTION.fs.file.impl", "a.FileSystem", Need.ADMINISTRATORS),
        ("parquet.compression", "zstd", Need.FREE),
        ("parquet.crypto.factory.class", "a.Factory", Need.ADMINISTRATORS),
        ("orc.key.provider", "hadoop", Need.ADMINISTRATORS),
    ],
)
def test_need_of_a_property(key: str, value: str, need: Need) -> None:
    assert tables.need_of_property(key, value) is need


@pytest.mark.parametrize(
    ("key", "value", "need"),
    [
        ("header", "true", Need.FREE),
        ("MULTILINE", "true", Need.FREE),
        ("parquet.enable.dictionary#a", "true", Need.FREE),
        ("field.delim", ";", Need.FREE),
        ("compression", "GZIP", Need.FREE),
        ("compression", "a.Codec", Need.JAR_FUNCTIONS),
        ("rowValidationXSDPath", "/etc/x.xsd", Need.PATHS),
        ("path", "/srv", Need.PATHS),
        ("url", "jdbc:x", Need.CONNECTIONS),
        ("kafka.bootstrap.servers", "x:1", Need.CONNECTIONS),
        ("kafka.sasl.jaas.config", "a.Module required", Need.ADMINISTRATORS),
        ("kafka.ssl.keystore.location", "/etc/k", Need.ADMINISTRATORS),
        ("fs.defaultFS", "s3a://x", Need.ADMINISTRATORS),
        ("no.such.option", "", Need.ADMINISTRATORS),
    ],
)
def test_need_of_an_option(key: str, value: str, need: Need) -> None:
    assert tables.need_of_option(key, value) is need


@pytest.mark.parametrize("read", [tables.class_needs, tables.command_rows, tables.sources])
def test_lists_are_read_once(read: Callable[[], object]) -> None:
    assert read() is read()
