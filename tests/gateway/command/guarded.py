"""A world in which privileges are checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.contract.examples import NOON
from tests.contract.examples import table as example
from tests.gateway.command.fakes import FakeEngine, World, analysis
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection, ServerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import (
    CatalogInspected,
    Done,
    FunctionList,
    Mention,
    NameList,
    ObjectFound,
    PlacesFound,
    Reading,
    SchemaNames,
    Surveyed,
)
from tidegate_server.core.messages.requests import (
    CheckCatalog,
    FindObject,
    FindPlaces,
    InspectCatalog,
    ListFunctions,
    ListNames,
    PutCatalogs,
    SetObjectOwner,
    Survey,
)
from tidegate_server.core.model.access import Access, Act, Admission, ObjectKind
from tidegate_server.core.model.names import FunctionName, TableName
from tidegate_server.core.model.privileges import (
    Grant,
    GrantObject,
    Privilege,
    SecuredKind,
    TableObject,
    user,
)
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.audit.record import Record
from tidegate_server.gateway.authorization.admission import admit_order
from tidegate_server.gateway.authorization.rights import (
    Action,
)
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.runs.orders import refresh_order
from tidegate_server.gateway.spark_catalogs import SentCatalogs
from tidegate_server.gateway.store.external import ExternalObjects, MemoryExternalObjects
from tidegate_server.gateway.store.privileges import MemoryPrivileges, Privileges

DAILY = example(id="t-1", name=TableName("spark_catalog", "d", "daily"), owner="ann")
HOURLY = example(id="t-2", name=TableName("spark_catalog", "d", "hourly"), owner="ann")
OTHER = example(id="t-3", name=TableName("spark_catalog", "Elsewhere", "daily"), owner="carl")
GIVEN = {
    Privilege.SELECT: {Action.SEE, Action.SELECT},
    Privilege.REFRESH: {Action.SEE, Action.REFRESH},
    Privilege.ALTER: {Action.SEE, Action.ALTER},
}


def grant(name: str, privilege: Privilege, on: GrantObject) -> Grant:
    return Grant(
        grantee=user(name), privilege=privilege, object=on, granted_by="ann", granted_at=NOON
    )


def run_as(world: Guarded, user: str, *statements: str) -> None:
    world.be(user)
    for each in statements:
        world.execute(each)


def outcome_as(world: Guarded, user: str, statement: str) -> str:
    world.be(user)
    return world.outcome(statement)


def selecting(name: TableName) -> Surveyed:
    """Return what a query accesses that reads one table."""
    access = Access(
        act=Act.SELECT,
        kind=ObjectKind.TABLE,
        catalog=name.catalog,
        schema=name.schema,
        name=name.table,
    )
    return Surveyed(readings=(Reading(name=name),), accesses=(access,))


READS_M = selecting(TableName("spark_catalog", "d", "m"))


Key = tuple[SecuredKind, str, str]
"""Kind, schema and name of an object; a schema has an empty name."""


class SurveyingEngine(FakeEngine):
    """Also answers surveys with what the test prepared, and knows plain objects with owners."""

    def __init__(self) -> None:
        super().__init__()
        self.surveys: dict[str, Surveyed] = {}
        self.schema_owner: str | None = "ROLE public"
        """The owner of the schemas with materialized tables; None if they are among the objects."""
        self.objects: dict[Key, str] = {(SecuredKind.SCHEMA, "d", ""): "dora"}
        self.links: dict[str, str] = {}
        """Where paths are, if not where they say."""
        self.catalog_state = CatalogInspected(state="READY")
        self.before_answer: Callable[[object], None] = lambda request: None

    def call(self, request, **options):  # type: ignore[no-untyped-def]
        self.before_answer(request)
        if isinstance(request, Survey):
            self.requests.append(request)
            return self.surveys.get(request.sql.strip(), Surveyed())
        match request:
            case FindObject(kind=SecuredKind.SCHEMA, name=TableName(schema="d" | "elsewhere")) if (
                self.schema_owner is not None
            ):
                return ObjectFound(kind=SecuredKind.SCHEMA, owner=self.schema_owner)
            case FindObject(kind=kind, name=name):
                return self._find(kind, name)
            case SetObjectOwner(kind=kind, name=name, owner=owner):
                self._raise_failure(request)
                self.objects[kind, name.schema, name.table] = owner
                return Done()
            case ListNames():
                self._raise_failure(request)
                return self._names()
            case FindPlaces(paths=paths):
                places = tuple(self.links.get(path, path) for path in paths)
                return PlacesFound(places=places, warehouse="file:/hive")
            case InspectCatalog():
                return self.catalog_state
            case PutCatalogs() | CheckCatalog():
                self.requests.append(request)
                self._raise_failure(request)
                return Done()
            case ListFunctions():
                found = (FunctionName(n, s) for k, s, n in self.objects if k.value == "FUNCTION")
                return FunctionList(functions=(FunctionName("abs"), *found))
        try:
            return super().call(request, **options)
        except AssertionError as unknown:
            # Any other request shows that the user was authorized.
            raise error(Code.NOT_SUPPORTED, what="this request") from unknown

    def _raise_failure(self, request: object) -> None:
        if failure := self.failures.get(type(request)):
            raise failure

    def _find(self, kind: SecuredKind, name: TableName) -> ObjectFound:
        relations = (SecuredKind.TABLE, SecuredKind.VIEW)
        for each in relations if kind in relations else (kind,):
            owner = self.objects.get((each, name.schema, name.table))
            if owner is not None:
                return ObjectFound(kind=each, owner=owner)
        return ObjectFound()

    def _names(self) -> NameList:
        def of(schema: str, kind: SecuredKind) -> dict[str, str]:
            return {n: o for (k, s, n), o in self.objects.items() if (k, s) == (kind, schema)}

        return NameList(
            schemas=tuple(
                SchemaNames(
                    schema=schema,
                    tables=tuple(of(schema, SecuredKind.TABLE)),
                    views=tuple(of(schema, SecuredKind.VIEW)),
                    owner=owner,
                    owners={**of(schema, SecuredKind.TABLE), **of(schema, SecuredKind.VIEW)},
                )
                for (kind, schema, _), owner in self.objects.items()
                if kind is SecuredKind.SCHEMA
            )
        )


@dataclass
class Guarded(World):
    """A world in which privileges are checked; ann owns m, and n, which reads m."""

    privileges: Privileges = field(default_factory=MemoryPrivileges)
    external: ExternalObjects = field(default_factory=MemoryExternalObjects)
    sent: SentCatalogs = field(default_factory=SentCatalogs)

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
        return replace(
            super()._services(),
            privileges=self.privileges,
            external=self.external,
            sent_catalogs=self.sent,
        )

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

    def message(self, text: str) -> str:
        """Return the message of the error that a statement ends with, or an empty text."""
        try:
            self.execute(text)
        except ServerError as problem:
            return problem.message
        return ""


SYSTEM = TableName("spark_catalog", "information_schema", "materialized_tables")


def of_system(*mentions: Mention, count: int = 1) -> Surveyed:
    return Surveyed(readings=(Reading(name=SYSTEM),) * count, mentions=mentions)


LOGINS = ServerSection(auth="PASSWORD")


def admit(table: MaterializedTable, services: Services) -> Admission | None:
    """Return what a run of the table may access."""
    request = RefreshRequest(table_id=table.id, trigger=Trigger.MANUAL, requested_by="ann")
    order = refresh_order(table, request, refresh_id="r", epoch=1, asked_at=NOON)
    return admit_order(order, services, record=Record()).admission
