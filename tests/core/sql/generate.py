"""Statements of every kind, made at random from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar, get_args

from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable
from tidegate_server.core.connectors.merging import DEFAULT, OVERWRITABLE, Feature, Merging
from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    OnUpdate,
    StartKind,
    StartMode,
    Violation,
    Watermark,
)
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.privileges import (
    PUBLIC,
    Grantee,
    Privilege,
    SecuredKind,
    group,
    role,
    user,
)
from tidegate_server.core.sql import privilege_statements as p
from tidegate_server.core.sql import statements as s
from tidegate_server.core.sql.catalogs import statements as c
from tidegate_server.core.sql.external import statements as e
from tidegate_server.core.sql.jobs import statements as j
from tidegate_server.core.sql.privileges import EXTERNAL
from tidegate_server.core.sql.statements import Name, Statement

T = TypeVar("T")

_OF_ROWS = [violation for violation in Violation if violation is not Violation.HOLD]
_OF_VERSIONS = (Violation.WARN, Violation.HOLD, Violation.FAIL)

_NAMES = (
    [
        "t",
        "m",
        "a",
        "B",
        "user_id",
        "daily revenue",
        "x`y",
        "größe",
        "表",
        "naïve-name",
        "2024",
        "é",
    ]
    + ["select", "as", "table", "primary", "constraint", "watermark", "first", "after", "comment"]
    + ["metadata", "expect", "set", "from", "a.b", "--", "/*", "//", ";", "'", '"', "\\", "\n", " "]
    + [
        "materialized",
        "partition",
        "refresh",
        "columns",
        "full",
        "cascade",
        "interval",
        "0",
        "x'1'",
    ]
)
_TEXTS = [
    "",
    "a",
    "it's",
    'say "hi"',
    "back\\slash",
    "\\",
    "\\'",
    "''",
    "a;b",
    "-- no",
    "/* no */",
    "//",
] + ["\n", "\t", "`", "größe", "表", "🙂", "yyyy-MM-dd", "2024-01-01", "%", "_", "\x00", "#{x}"]
_QUERIES = (
    ["SELECT 1", "-- why\nSELECT ';' AS a -- because", "(SELECT 1) UNION ALL (SELECT 2)"]
    + ["WITH q AS (SELECT a FROM t /* ; */) SELECT a FROM q", "VALUES (1, 'a;b'), (2, \"c\")"]
    + ["SELECT * FROM STREAM read_files('/a;b', format => 'json')"]
    + ["FROM t SELECT a", "TABLE t", "SELECT a // daily\n, b FROM t", "select `x``y` from `größe`"]
    + ["SELECT ds, count(*) FROM t GROUP BY GROUPING SETS(ds, (ds, hh))", "SELECT r'\\d' FROM t"]
)
_EXPRESSIONS = (
    ["a", "a + 1", "upper(coalesce(b, 'none, sir'))", "ts - INTERVAL '5' SECOND", "first(a)"]
    + ["CASE WHEN a > 0 THEN 'x' ELSE ')' END", "array(1, 2)[0]", "a /* , */ + b", "`after`"]
    + ["named_struct('a', 1).a", "a -- one\n + 1", "transform(xs, x -> x + 1)", "m['comment']"]
)
_TYPES = (
    ["INT", "BIGINT", "STRING", "DECIMAL(10, 2)", "VARCHAR(255)", "TIMESTAMP", "timestamp_ntz"]
    + ["MAP<STRING, ARRAY<INT>>", "STRUCT<a: INT, b: STRUCT<c: STRING COMMENT 'x'>>"]
    + ["TIMESTAMP_LTZ", "INTERVAL DAY TO SECOND", "DOUBLE", "BINARY"]
)


class Generator:
    """Draws statements; equal seeds draw equal statements."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def statement(self) -> Statement:
        """Return a statement of any kind but Spark's, every kind as often as any other."""
        return self._random.choice(list(_KINDS.values()))(self)

    # ---- parts

    def chance(self) -> bool:
        return self._random.random() < 0.5

    def maybe(self, make: Callable[[], T]) -> T | None:
        return make() if self.chance() else None

    def some(self, make: Callable[[], T], least: int = 0, most: int = 3) -> tuple[T, ...]:
        return tuple(make() for _ in range(self._random.randint(least, most)))

    def one(self, *of: T) -> T:
        return self._random.choice(of)

    def identifier(self) -> str:
        return self.one(*_NAMES)

    def name(self, most: int = 3) -> Name:
        return self.some(self.identifier, 1, most)

    def text(self) -> str:
        return "".join(self.some(lambda: self.one(*_TEXTS), 0, 3))

    def options(self, least: int = 0) -> Mapping[str, str]:
        return dict(self.some(lambda: (self.text(), self.text()), least))

    def expression(self) -> str:
        return self.one(*_EXPRESSIONS)

    def query(self) -> str:
        return self.one(*_QUERIES)

    def number(self) -> int:
        return self.one(0, 1, 7, 1000, 2**31, 10**17)

    def buckets(self) -> int:
        return self.one(1, 7, 1000, 100_000)

    def freshness(self) -> Freshness:
        return Freshness(self.one(1, 3, 30, 2**31 - 1), self.one(*TimeUnit))

    def any_freshness(self) -> Freshness | s.Downstream:
        return s.Downstream.DOWNSTREAM if self.one(*range(5)) == 0 else self.freshness()

    def on_update(self) -> OnUpdate:
        return OnUpdate(at_most_every=self.maybe(self.freshness))

    def start_mode(self) -> StartMode:
        kind = self.one(*StartKind)
        if kind.value.endswith("NOW"):
            return StartMode(kind=kind, interval=self.maybe(self.freshness))
        if kind.value.endswith("TIMESTAMP"):
            return StartMode(kind=kind, timestamp=self.text(), local_zone=self.chance())
        return StartMode(kind=kind)

    def distribution(self) -> Distribution:
        if self.chance():
            return Distribution(buckets=self.buckets())
        kind, columns = self.one(None, "HASH", "RANGE"), self.some(self.identifier, 1)
        return Distribution(kind=kind, columns=columns, buckets=self.maybe(self.buckets))

    def watermark(self) -> Watermark:
        return Watermark(column=self.identifier(), expression=self.expression())

    def primary_key(self) -> s.PrimaryKeyClause:
        columns = self.some(self.identifier, 1)
        return s.PrimaryKeyClause(columns=columns, name=self.maybe(self.identifier))

    def expectations(self) -> tuple[Expectation, ...]:
        names = dict.fromkeys(self.some(self.identifier, 0, 2))
        return tuple(
            Expectation(name=n, condition=self.expression(), violation=self.one(*_OF_ROWS))
            for n in names
        )

    def assertions(self, others: tuple[Expectation, ...]) -> tuple[Assertion, ...]:
        taken = {each.name for each in others}
        names = dict.fromkeys(n for n in self.some(self.identifier, 0, 2) if n not in taken)
        return tuple(
            Assertion(name=n, condition=self.comparison(), violation=self.one(*_OF_VERSIONS))
            for n in names
        )

    def comparison(self) -> str:
        measure = self.one("row_count", "count(*)", f"max({self.expression()})")
        return self.one(self.expression(), f"{measure} > 0.5 * previous({measure})")

    def column(self) -> s.ColumnItem:
        name, comment = self.identifier(), self.maybe(self.text)
        match self.one("physical", "metadata", "computed"):
            case "computed":
                return s.ComputedColumn(name=name, expression=self.expression(), comment=comment)
            case "metadata":
                return s.MetadataColumn(
                    name=name,
                    type=self.one(*_TYPES),
                    nullable=self.chance(),
                    key=self.maybe(self.text),
                    virtual=self.chance(),
                    comment=comment,
                )
            case _:
                return s.PhysicalColumn(
                    name=name, type=self.one(*_TYPES), nullable=self.chance(), comment=comment
                )

    def change(self) -> s.SchemaChange:
        match self.one("column", "column", "key", "distribution"):
            case "key":
                return self.primary_key()
            case "distribution":
                return self.distribution()
            case _:
                first = self.chance()
                after = None if first else self.maybe(self.identifier)
                return s.ColumnChange(column=self.column(), first=first, after=after)

    def changes(self) -> tuple[s.SchemaChange, ...]:
        watermark = () if self.chance() else (self.watermark(),)
        return (*watermark, *self.some(self.change, 1))

    def partition(self) -> Mapping[str, str]:
        return dict(self.some(lambda: (self.identifier(), self.text()), 1))

    # ---- statements

    def create(self) -> s.CreateMaterializedTable:
        immutable = self.maybe(self.expression)
        return s.CreateMaterializedTable(
            name=self.name(),
            query=self.query(),
            or_alter=(or_alter := self.chance()),
            if_not_exists=not or_alter and self.chance(),
            **self._schema(),
            comment=self.maybe(self.text),
            distribution=self.maybe(self.distribution),
            partition_keys=self.some(self.identifier),
            options=self.options(),
            start_mode=self.maybe(self.start_mode),
            freshness=self.maybe(self.any_freshness),
            refresh_mode=self.maybe(lambda: self.one(*s.RequestedMode)),
            on_update=self.maybe(self.on_update),
            execute_as=self.maybe(self.text),
            immutable=immutable,
            backfill_from=self.maybe(self.name) if immutable is not None else None,
        )

    def _schema(self) -> dict[str, object]:
        if self.chance():
            return {"columns": self.some(lambda: s.ColumnName(name=self.identifier()))}
        expectations = self.expectations()
        return {
            "columns": self.some(self.column),
            "primary_key": self.maybe(self.primary_key),
            "watermark": self.maybe(self.watermark),
            "expectations": expectations,
            "assertions": self.assertions(expectations),
        }

    def refresh(self) -> s.AlterRefresh:
        scope = self.one("", "partition", "range", "predicate")
        return s.AlterRefresh(
            name=self.name(),
            kind=self.maybe(lambda: self.one(*s.RefreshKind)),
            partition=self.partition() if scope == "partition" else None,
            range=s.PartitionRange(start=self.partition(), end=self.partition())
            if scope == "range"
            else None,
            predicate=self.expression() if scope == "predicate" else None,
            cascade=self.maybe(lambda: self.one(*s.Cascade)),
            asynchronous=self.chance(),
        )

    def drop_part(self) -> s.AlterDrop:
        match self.one("columns", "constraint", "part"):
            case "columns":
                return s.AlterDrop(name=self.name(), columns=self.some(self.identifier, 1))
            case "constraint":
                return s.AlterDrop(name=self.name(), constraint=self.identifier())
            case _:
                return s.AlterDrop(name=self.name(), part=self.one(*s.DropPart))

    def show_tables(self) -> s.ShowMaterializedTables:
        pattern = self.maybe(self.text)
        return s.ShowMaterializedTables(
            schema=self.name(2) if self.chance() else (),
            extended=self.chance(),
            pattern=pattern,
            negated=pattern is not None and self.chance(),
            ignore_case=pattern is not None and self.chance(),
        )

    def on(self) -> p.OnObject:
        kind = self.one(*SecuredKind)
        if kind in EXTERNAL:
            return p.OnObject(kind=kind, name=(self.role(),))
        return p.OnObject(kind=kind, name=self.name(2 if kind is SecuredKind.SCHEMA else 3))

    def external(self) -> SecuredKind:
        return self.one(SecuredKind.EXTERNAL_LOCATION, SecuredKind.CONNECTION)

    def like(self) -> e.CreateTableLike:
        own = ConnectorTable(
            columns=self.some(self.connector_column),
            options=self.options(),
            primary_key=self.some(self.identifier),
            partition_keys=self.some(self.identifier),
            watermark=self.maybe(self.watermark),
        )
        bare = self.chance() and self.chance()
        own = ConnectorTable(columns=(), options={}) if bare else own
        temporary = not bare and self.chance()
        return e.CreateTableLike(
            name=self.name(),
            other=self.name(),
            own=own,
            how=DEFAULT if bare else self.features(),
            temporary=temporary,
            if_not_exists=not temporary and self.chance(),
            comment=None if bare else self.maybe(self.text),
            bare=bare,
        )

    def connector_column(self) -> ConnectorColumn:
        name, comment = self.identifier(), self.maybe(self.text)
        if self.chance():
            return ConnectorColumn(name=name, expression=self.expression(), comment=comment)
        key = self.maybe(lambda: self.one("topic", "it's", "größe"))
        return ConnectorColumn(
            name=name,
            type=self.one(*_TYPES),
            metadata=key,
            virtual=key is not None and self.chance(),
            nullable=self.chance(),
            comment=comment,
        )

    def features(self) -> Mapping[Feature, Merging]:
        return {
            each: self.one(*Merging)
            if each in OVERWRITABLE
            else self.one(Merging.INCLUDING, Merging.EXCLUDING)
            for each in Feature
        }

    def grantee(self) -> Grantee:
        return self.one(user(self.user()), role(self.role()), group(self.user()), PUBLIC)

    def member(self) -> Grantee:
        return self.one(user(self.user()), role(self.role()), group(self.user()))

    def owner(self) -> Grantee:
        return self.one(user(self.user()), role(self.role()))

    def user(self) -> str:
        return self.one("ann", "o'brien", "größe", "a b", "x`y", "select", "Ann")

    def role(self) -> str:
        return self.one("analysts", "o'brien", "größe", "a b", "x`y", "select")

    def grant(self) -> p.GrantPrivileges:
        grantee = self.grantee()
        return p.GrantPrivileges(
            privileges=self.privileges(),
            on=self.on(),
            grantee=grantee,
            grantable=grantee != PUBLIC and self.chance(),
        )

    def privileges(self) -> tuple[Privilege, ...]:
        return tuple(dict.fromkeys(self.some(lambda: self.one(*Privilege), 1)))

    def explain(self) -> s.Explain:
        query = s.AlterAsQuery(name=self.name(), query=self.query())
        back = s.AlterRollbackDefinition(name=self.name(), version=self.maybe(self.number))
        statement = self.one(self.create(), self.refresh(), query, back)
        detailed = isinstance(statement, s.CreateMaterializedTable)
        detail = self.one("", *s.EXPLAIN_DETAILS) if detailed else ""
        return s.Explain(statement=statement, detail=detail)


_KINDS: Mapping[type[Statement], Callable[[Generator], Statement]] = {
    s.CreateMaterializedTable: Generator.create,
    s.AlterSuspend: lambda g: s.AlterSuspend(name=g.name(), cascade=g.chance()),
    s.AlterResume: lambda g: s.AlterResume(name=g.name(), options=g.options(), cascade=g.chance()),
    s.AlterRefresh: Generator.refresh,
    s.AlterCancelRefresh: lambda g: s.AlterCancelRefresh(name=g.name()),
    s.AlterAsQuery: lambda g: s.AlterAsQuery(name=g.name(), query=g.query()),
    s.AlterSetOptions: lambda g: s.AlterSetOptions(name=g.name(), options=g.options(1)),
    s.AlterResetOptions: lambda g: s.AlterResetOptions(
        name=g.name(), keys=tuple(dict.fromkeys(g.some(g.text, 1)))
    ),
    s.AlterSetFreshness: lambda g: s.AlterSetFreshness(name=g.name(), freshness=g.any_freshness()),
    s.AlterSetRefreshMode: lambda g: s.AlterSetRefreshMode(
        name=g.name(), mode=g.one(*s.RequestedMode)
    ),
    s.AlterSetRefreshTrigger: lambda g: s.AlterSetRefreshTrigger(
        name=g.name(), on_update=g.maybe(g.on_update)
    ),
    s.AlterSetImmutable: lambda g: s.AlterSetImmutable(name=g.name(), predicate=g.expression()),
    s.AlterAdd: lambda g: s.AlterAdd(name=g.name(), changes=g.changes()),
    s.AlterModify: lambda g: s.AlterModify(name=g.name(), changes=g.changes()),
    s.AlterDrop: Generator.drop_part,
    s.AlterRename: lambda g: s.AlterRename(name=g.name(), new_name=g.name()),
    s.AlterSwap: lambda g: s.AlterSwap(name=g.name(), other=g.name()),
    s.AlterPublishHeld: lambda g: s.AlterPublishHeld(name=g.name()),
    s.AlterDiscardHeld: lambda g: s.AlterDiscardHeld(name=g.name()),
    s.AlterSetExecuteAs: lambda g: s.AlterSetExecuteAs(name=g.name(), execute_as=g.maybe(g.text)),
    s.AlterRollback: lambda g: s.AlterRollback(
        name=g.name(), version=g.number(), what=g.one(*s.RolledBack)
    ),
    s.AlterConvertToTable: lambda g: s.AlterConvertToTable(name=g.name()),
    s.AlterRollbackDefinition: lambda g: s.AlterRollbackDefinition(
        name=g.name(), version=g.maybe(g.number)
    ),
    s.VerifyMaterializedTable: lambda g: s.VerifyMaterializedTable(
        name=g.name(), version=g.maybe(g.number)
    ),
    s.DropMaterializedTable: lambda g: s.DropMaterializedTable(name=g.name(), if_exists=g.chance()),
    s.ShowMaterializedTables: Generator.show_tables,
    s.ShowCreateMaterializedTable: lambda g: s.ShowCreateMaterializedTable(
        name=g.name(), or_alter=g.chance()
    ),
    s.ShowRefreshHistory: lambda g: s.ShowRefreshHistory(
        name=g.maybe(g.name), limit=g.maybe(g.number), errors=g.chance()
    ),
    s.ShowLineage: lambda g: s.ShowLineage(name=g.name(), columns=g.chance()),
    s.ShowLag: lambda g: s.ShowLag(),
    s.ShowEngines: lambda g: s.ShowEngines(),
    s.ShowVersions: lambda g: s.ShowVersions(name=g.name(), definition=g.chance()),
    s.ShowCreateTable: lambda g: s.ShowCreateTable(name=g.name()),
    s.DescribeTable: lambda g: s.DescribeTable(
        name=g.name(), materialized=g.chance(), extended=g.chance(), as_json=g.chance()
    ),
    s.Explain: Generator.explain,
    s.SetOption: lambda g: s.SetOption(key=g.text(), value=g.text()),
    s.ShowOption: lambda g: s.ShowOption(key=g.text()),
    s.ShowOptions: lambda g: s.ShowOptions(verbose=g.chance()),
    p.GrantPrivileges: Generator.grant,
    p.RevokePrivileges: lambda g: p.RevokePrivileges(
        privileges=g.privileges(),
        on=g.on(),
        grantee=g.grantee(),
        option_only=g.chance(),
        cascade=g.chance(),
    ),
    p.ShowGrants: lambda g: p.ShowGrants(
        on=g.one(None, g.on(), p.OnRole(role=g.role())), grantee=g.maybe(g.grantee)
    ),
    p.CreateRole: lambda g: p.CreateRole(role=g.role(), if_not_exists=g.chance()),
    p.DropRole: lambda g: p.DropRole(role=g.role(), if_exists=g.chance(), cascade=g.chance()),
    p.GrantRole: lambda g: p.GrantRole(role=g.role(), member=g.member()),
    p.RevokeRole: lambda g: p.RevokeRole(role=g.role(), member=g.member()),
    p.ShowRoles: lambda g: p.ShowRoles(current=g.chance()),
    p.SetOwner: lambda g: p.SetOwner(on=g.on(), owner=g.owner()),
    e.CreateExternalLocation: lambda g: e.CreateExternalLocation(
        name=g.role(), url=g.text(), comment=g.maybe(g.text), if_not_exists=g.chance()
    ),
    e.CreateTableLike: Generator.like,
    e.SetExternalLocationUrl: lambda g: e.SetExternalLocationUrl(name=g.role(), url=g.text()),
    e.CreateConnection: lambda g: e.CreateConnection(
        name=g.role(),
        type=g.role(),
        options={"url": g.text(), "x y": g.text()},
        secrets={"password": g.text()} if g.chance() else {},
        comment=g.maybe(g.text),
        if_not_exists=g.chance(),
    ),
    e.SetConnectionOptions: lambda g: e.SetConnectionOptions(
        name=g.role(), options={"url": g.text()}, secrets={"password": g.text()}
    ),
    e.RenameExternal: lambda g: e.RenameExternal(
        kind=g.external(), name=g.role(), new_name=g.role()
    ),
    e.DropExternal: lambda g: e.DropExternal(
        kind=g.external(), name=g.role(), if_exists=g.chance()
    ),
    e.ShowExternal: lambda g: e.ShowExternal(kind=g.external()),
    e.DescribeExternal: lambda g: e.DescribeExternal(kind=g.external(), name=g.role()),
    c.CreateCatalog: lambda g: c.CreateCatalog(
        name=g.role(),
        options={"type": g.text(), "x y": g.text()},
        comment=g.maybe(g.text),
        if_not_exists=g.chance(),
    ),
    c.SetCatalogOptions: lambda g: c.SetCatalogOptions(
        name=g.role(), options={"x": g.text(), "password": "${secret:crm}"}
    ),
    c.ResetCatalogOptions: lambda g: c.ResetCatalogOptions(name=g.role(), keys=(g.text(),)),
    c.SetCatalogComment: lambda g: c.SetCatalogComment(name=g.role(), comment=g.text()),
    c.DropCatalog: lambda g: c.DropCatalog(name=g.role(), if_exists=g.chance()),
    j.BeginStatementSet: lambda g: j.BeginStatementSet(
        inserts=g.some(lambda: f"INSERT INTO t {g.one('SELECT 1', 'TABLE `a;b`')}"), ends=g.chance()
    ),
    j.EndStatementSet: lambda g: j.EndStatementSet(),
    j.ShowJobs: lambda g: j.ShowJobs(),
    j.DescribeJob: lambda g: j.DescribeJob(id=g.text()),
    j.StopJob: lambda g: j.StopJob(id=g.text()),
    c.ShowCatalogs: lambda g: (
        c.ShowCatalogs(pattern=g.text(), negated=g.chance(), ignore_case=g.chance())
        if g.chance()
        else c.ShowCatalogs()
    ),
    c.ShowCurrentCatalog: lambda g: c.ShowCurrentCatalog(),
    c.DescribeCatalog: lambda g: c.DescribeCatalog(name=g.role(), extended=g.chance()),
    c.ShowCreateCatalog: lambda g: c.ShowCreateCatalog(name=g.role()),
    c.UseCatalog: lambda g: c.UseCatalog(name=g.role()),
    s.ResetOption: lambda g: s.ResetOption(key=g.maybe(g.text)),
}

KINDS = frozenset(_KINDS)
ALL_KINDS = frozenset(get_args(Statement)) - {s.SparkStatement}
