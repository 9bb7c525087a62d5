"""The server's configuration: defaults < TOML file < environment < command line."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tidegate_server.core.model.privileges import PUBLIC_ROLE
from tidegate_server.core.model.zones import LOCAL_ZONE, SESSION_ZONE, UNSET, parse_zone
from tidegate_server.core.secret_references import KINDS, Secret

SCHEDULER_OPTIONS = "workflow-scheduler."
"""Prefix of the options that only the server sets, and passes to its scheduler."""
SCHEDULER_TYPE_OPTION = f"{SCHEDULER_OPTIONS}type"
MAX_CONCURRENT_OPTION = "materialized-table.refresh.max-concurrent"
STORE_KIND_OPTION = "table.catalog-store.kind"
STORE_PATH_OPTION = "table.catalog-store.file.path"
IN_MEMORY = "generic_in_memory"
REDACTION_KEY = "spark.redaction.regex"

_PREFIX = "TIDEGATE_"
FLINKS_SECTIONS = ("workflow-scheduler", "table", "materialized-table")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


AuthMethod = Literal["NONE", "NOSASL", "PASSWORD", "LDAP", "CUSTOM", "JWT", "KERBEROS"]


Hazard = Literal[
    "resources",
    "jar-functions",
    "scripts",
    "static-settings",
    "paths",
    "locations",
    "connections",
]
"""Ways from SQL to files, programs and the JVM, as ``authorization.allow`` names them."""


AlertKind = Literal["failed", "suspended", "lag"]


class ServerSection(_Section):
    """The listening side."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 10000
    auth: AuthMethod = "NONE"
    insecure: bool = False
    """Allow a non-loopback address without authentication."""
    plaintext_passwords: bool = False
    """Accept passwords and tokens without TLS from other machines too."""
    workers: Annotated[int, Field(ge=1)] = 32
    """Threads that run statements and encode results."""
    max_sessions: Annotated[int, Field(ge=1)] = 2000
    max_sessions_per_user: Annotated[int, Field(ge=0)] = 0
    """Open sessions per login; 0 means no limit besides ``max_sessions``."""
    max_statements_per_user: Annotated[int, Field(ge=0)] = 0
    """Queued or running statements per login; 0 means no limit."""
    session_idle_timeout: Annotated[float, Field(gt=0)] = 6 * 3600.0
    """Seconds without a call or running work after which a session is closed."""
    operation_idle_timeout: Annotated[float, Field(gt=0)] = 6 * 3600.0
    """Seconds after which a statement's result is freed if it is not fetched."""
    query_timeout: Annotated[float, Field(ge=0)] = 0.0
    """Seconds that a statement may run, whatever its client asks for; 0 means no limit."""
    login_timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds a connection may take until its first complete request."""
    disconnect_grace: Annotated[float, Field(ge=0)] = 30.0
    """Seconds for which the sessions of a broken connection can be used from a new one."""
    max_request_bytes: Annotated[int, Field(ge=1024)] = 64 << 20
    max_reply_bytes: Annotated[int, Field(ge=64 << 10)] = 8 << 20
    fetch_size: Annotated[int, Field(ge=1)] = 10_000
    """Rows per fetch suggested to clients."""
    materialized_as_table: bool = False
    """Show materialized tables as TABLE in metadata calls, whatever types are requested."""
    http_port: Annotated[int, Field(ge=-1, le=65535)] = 10002
    """Port of the REST interface, metrics and health; -1 means none."""
    http_token: Secret = Field(default="", repr=False)
    """Bearer token that the REST interface and the metrics ask for."""
    http_user: str = "rest"
    """The user that calls of the REST interface act as."""

    @property
    def rest_port(self) -> int | None:
        """The port of the REST interface; None means none.

        Unless configured it follows ``port``, so that two gateways on one machine need to differ
        in one key only.
        """
        if self.http_port == -1:
            return None
        if "http_port" in self.model_fields_set:
            return self.http_port
        return 0 if self.port == 0 or self.port > 65533 else self.port + 2


class LoginSection(_Section):
    """How names and passwords are checked."""

    password_file: str = ""
    """File of users and argon2 hashes, for PASSWORD."""
    custom: str = ""
    """Name of an entry point in ``tidegate.authenticators``, or ``module:Class``, for CUSTOM."""
    custom_options: dict[str, Secret] = Field(default_factory=dict, repr=False)
    timeout: Annotated[float, Field(gt=0)] = 15.0
    """Seconds that one check may take."""
    max_concurrent: Annotated[int, Field(ge=1)] = 8
    """Concurrent checks; up to four times as many are queued."""
    token_lifetime: Annotated[float, Field(gt=0)] = 86400.0
    """Seconds for which a delegation token is valid without renewal."""
    token_max_lifetime: Annotated[float, Field(gt=0)] = 7 * 86400.0
    """Seconds after which a delegation token can no longer be renewed."""


class LdapSection(_Section):
    """The directory server for LDAP."""

    url: str = ""
    user_dn: str = ""
    """Distinguished name to bind as, with ``{user}`` in it; or else, search and bind:"""
    base_dn: str = ""
    user_filter: str = "(uid={user})"
    bind_dn: str = ""
    """User for searches; empty searches anonymously."""
    bind_password_file: str = ""
    start_tls: bool = False
    group_base_dn: str = ""
    """Where to search for a user's groups at login; empty means that groups are not used."""
    group_filter: str = "(member={dn})"
    """Filter of the user's groups, with ``{dn}`` or ``{user}`` in it."""
    group_attribute: str = "cn"
    """Attribute of a group's entry that contains its name."""
    ca: str = ""
    """File of trusted certificates; empty means the system's."""
    timeout: Annotated[int, Field(ge=1)] = 5
    """Whole seconds for connecting and for each answer."""


class JwtSection(_Section):
    """The bearer tokens that the HTTP transport accepts."""

    jwks: str = ""
    """File or URL of the keys that sign tokens; empty means no token is accepted."""
    issuer: str = ""
    audience: str = ""
    user_claim: str = "sub"
    groups_claim: str = ""
    """Claim with the list of the user's groups; empty means that groups are not used."""


class KerberosSection(_Section):
    """The service's identity in a Kerberos realm."""

    keytab: str = ""
    """File with the service's keys."""
    realm: str = ""
    """Realm whose principals are shortened to their first part."""
    qop: Literal["auth", "auth-int", "auth-conf"] = "auth"
    """Minimum protection for binary clients."""


class TlsSection(_Section):
    """Encryption of the Thrift port."""

    certificate: str = ""
    """PEM file of the certificate with its chain; empty means no TLS."""
    key: str = ""
    require: bool = False
    """Reject connections without TLS."""
    client_ca: str = ""
    """PEM file of the authorities of accepted client certificates."""
    client_certificates: Literal["optional", "required"] = "optional"


class HttpSection(_Section):
    """The HTTP transport of the Thrift port."""

    path: Annotated[str, Field(pattern=r"^/?[\w/.-]*$")] = "cliservice"
    cookie_max_age: Annotated[float, Field(ge=0)] = 3600.0
    """Seconds for which the login cookie is valid; 0 means no cookie."""
    idle_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds after which a connection without a request is closed."""
    xsrf_header: bool = False
    """Accept only requests with the header X-XSRF-HEADER."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-For and X-Forwarded-Proto are trusted."""


class ProxySection(_Section):
    """The users that one user may impersonate."""

    users: tuple[str, ...] = ()
    """Names, or ``*`` for all."""
    hosts: tuple[str, ...] = ()
    """Allowed client addresses and networks; none means any."""


class EngineUserSection(_Section):
    """What the engine of one user gets."""

    settings: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Spark settings of this user's engine alone, such as storage credentials."""


class EngineSection(_Section):
    """The Spark side."""

    master: str = "local[*]"
    driver_memory: str = "2g"
    shared_data: bool = False
    """Whether all machines of ``master`` have the data directory mounted at the same path."""
    kafka: bool = False
    """Whether Spark's Kafka source is loaded, for STREAM read_kafka."""
    iceberg: bool = False
    """Whether Iceberg is loaded, for catalogs of the type iceberg."""
    group_reads: bool = False
    """Whether the group of the server's user may read the tables."""
    jars: tuple[str, ...] = ()
    """Further jars on the class path, such as JDBC drivers."""
    warm_up: bool = True
    """Whether an engine runs queries after its start, for Java to compile frequent code."""
    settings: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Further Spark settings of the engine's session."""
    start_timeout: Annotated[float, Field(gt=0)] = 300.0
    inline_bytes: Annotated[int, Field(ge=0)] = 1 << 20
    direct_bytes: Annotated[int, Field(ge=1 << 20)] = 32 << 20
    """Results up to this estimated size are collected; larger ones are spooled."""
    spool_quota: Annotated[int, Field(ge=1 << 20)] = 64 << 30
    spool_quota_per_user: Annotated[int, Field(ge=0)] = 0
    """Bytes of the spool that the results of one login may take; 0 means all of them."""
    share: Literal["gateway", "user"] = "gateway"
    """Who shares an engine process: all users of the gateway, or the sessions of one user."""
    users: dict[str, EngineUserSection] = Field(default_factory=dict, repr=False)
    """What the engines of users get beyond ``settings``, by user name."""
    own_settings: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Spark settings of the gateway's own engine alone, which no user's engine gets."""
    idle_timeout: Annotated[float, Field(gt=0)] = 900.0
    """Seconds after which a user's engine that is not used ends."""
    max_engines: Annotated[int, Field(ge=1)] = 8
    """Engines of users that run at the same time."""
    launcher: tuple[str, ...] = ()
    """Words before the command of a user's engine, with ``{account}`` in them; none starts it
    under the gateway's account."""
    account: str = "{user}"
    """The account of the system that a user's engine runs under, with ``{user}`` in it."""

    @field_validator("jars")
    @classmethod
    def _are_files(cls, jars: tuple[str, ...]) -> tuple[str, ...]:
        """Reject what is no file, which Java would ignore."""
        missing = [jar for jar in jars if not Path(jar).is_file()]
        if missing:
            raise ValueError(f"{missing[0]} is not a file")
        return tuple(str(Path(jar).resolve()) for jar in jars)


class SchedulerSection(_Section):
    """The scheduler, and the polling of sources."""

    type: str = "embedded"
    """``embedded``, ``none``, or another scheduler: an entry point or ``module:Class``."""
    endpoint: str = ""
    """URL under which another scheduler reaches the REST interface; empty means its address."""
    poll_interval: Annotated[float, Field(gt=0)] = 0.5
    """Seconds between checks for due workflows and changed sources."""
    lease: Annotated[float, Field(gt=1)] = 30.0
    """Seconds a claim on a table lasts unless extended."""
    max_concurrent: Annotated[int, Field(ge=1)] = 2
    """Refreshes that run at the same time."""
    patience: Annotated[float, Field(ge=0)] = 60.0
    """Seconds that ALTER and DROP wait for a running refresh of their table."""
    timezone: str = ""
    """The server's zone; empty means that of engine.settings, else UTC."""
    history_days: Annotated[float, Field(gt=0)] = 90.0
    """Days for which the record of a refresh is kept."""


class LoggingSection(_Section):
    """The gateway's log."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    format: Literal["json", "text"] = "json"
    console: bool = False
    """Write the lines to standard error as well."""


class AuthorizationSection(_Section):
    """Privileges on objects."""

    enabled: bool = False
    administrators: tuple[str, ...] = ()
    """Users who may do everything."""
    administrator_roles: tuple[str, ...] = ()
    """Roles whose members may do everything."""
    administrator_groups: tuple[str, ...] = ()
    """Groups whose members may do everything, as of their login."""
    allow: tuple[Hazard, ...] = ()
    """Hazards that users other than administrators may use."""

    @field_validator("administrator_roles")
    @classmethod
    def _no_public(cls, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Reject PUBLIC, and fold the names."""
        folded = tuple(name.lower() for name in roles)
        if PUBLIC_ROLE in folded:
            raise ValueError("the role public contains every user")
        return folded


class AuditSection(_Section):
    """The audit log."""

    enabled: bool | Literal["auto"] = "auto"
    """Whether there is one; ``auto`` means only where users are distinguished."""
    file: str = ""
    """Its path; empty means ``audit/audit.jsonl`` in the data directory."""
    file_bytes: Annotated[int, Field(ge=64 << 10)] = 64 << 20
    """Size from which the file is rotated."""
    files: Annotated[int, Field(ge=2, le=1000)] = 10
    """Number of files that are kept, with the current one."""
    required: bool = False
    """Refuse what cannot be recorded."""


class AlertsSection(_Section):
    """Alerts about failures and lag."""

    webhook: Secret = Field(default="", repr=False)
    """URL that receives each alert as JSON by POST; empty means none."""
    webhook_headers: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Headers of these calls, for example ``Authorization``."""
    command: tuple[str, ...] = ()
    """Program and arguments that are run for each alert, with the alert on standard input."""
    events: tuple[AlertKind, ...] = ("failed", "suspended", "lag")
    timeout: Annotated[float, Field(gt=0)] = 10.0
    """Seconds that one attempt may take."""
    attempts: Annotated[int, Field(ge=1, le=20)] = 3
    """Attempts at delivery."""
    lag_interval: Annotated[float, Field(gt=0)] = 15.0
    """Seconds between checks of the tables' lag."""
    lag_grace: Annotated[float, Field(ge=0)] = 60.0
    """Seconds by which a lag may exceed the freshness before an alert."""


class CatalogStoreSection(_Section):
    """Where catalogs are kept that CREATE CATALOG creates."""

    kind: Literal["database", "file", "generic_in_memory"] = "database"
    """The store, files as Flink has them, or the memory of the server."""
    path: str = ""
    """The directory of the files; empty means ``catalogs`` in the data directory."""

    @model_validator(mode="after")
    def _path_of_files(self) -> CatalogStoreSection:
        """Check that a path has an effect."""
        if self.path and self.kind != "file":
            raise ValueError('catalog_store.path has no effect without catalog_store.kind = "file"')
        return self


class StoreSection(_Section):
    """The relational database."""

    url: Secret = Field(default="", repr=False)
    """SQLAlchemy URL; empty means SQLite in the data directory."""


class Config(BaseSettings):
    """The whole configuration, frozen; environment names look like TIDEGATE_SERVER__PORT."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=_PREFIX, env_nested_delimiter="__"
    )

    data: Path = Path("tidegate-data")
    """Directory of the store, the warehouse, the metastore, the spool and the logs."""
    server: ServerSection = ServerSection()
    engine: EngineSection = EngineSection()
    scheduler: SchedulerSection = SchedulerSection()
    store: StoreSection = StoreSection()
    catalog_store: CatalogStoreSection = CatalogStoreSection()
    alerts: AlertsSection = AlertsSection()
    logging: LoggingSection = LoggingSection()
    authorization: AuthorizationSection = AuthorizationSection()
    audit: AuditSection = AuditSection()
    login: LoginSection = LoginSection()
    ldap: LdapSection = LdapSection()
    jwt: JwtSection = JwtSection()
    kerberos: KerberosSection = KerberosSection()
    tls: TlsSection = TlsSection()
    http: HttpSection = HttpSection()
    proxy: dict[str, ProxySection] = Field(default_factory=dict)
    """Impersonation rules by user name."""
    options: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Server-wide defaults of materialized-table.* and workflow-scheduler.* options."""
    secrets: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Secrets that connections and catalogs refer to, by name."""

    _secret_variables: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_variables(cls, given: Any, handler: ModelWrapValidatorHandler[Config]) -> Config:
        config = handler(given)
        config._secret_variables = frozenset(_variables(given))
        return config

    @model_validator(mode="before")
    @classmethod
    def _flinks_spelling(cls, given: Any) -> Any:
        """Turn Flink's sections, such as ``[workflow-scheduler]``, into options."""
        if not isinstance(given, dict) or not isinstance(given.get("options", {}), dict):
            return given
        theirs = {key for key in given if key.partition(".")[0] in FLINKS_SECTIONS}
        ours = {key: value for key, value in given.items() if key not in theirs}
        pairs = [*ours.get("options", {}).items(), *((key, given[key]) for key in theirs)]
        options = {key: text for pair in pairs for key, text in _flat(*pair)}
        if MAX_CONCURRENT_OPTION in options:
            scheduler = dict(ours.get("scheduler", {}))
            ours["scheduler"] = {**scheduler, "max_concurrent": options[MAX_CONCURRENT_OPTION]}
        return {**ours, "options": options} if options else ours

    @model_validator(mode="after")
    def _one_store(self) -> Config:
        """Check that Flink's keys for a catalog store agree with ``store.url``."""
        kind, path = self.options.get(STORE_KIND_OPTION), self.options.get(STORE_PATH_OPTION)
        shared = self.store.url.startswith("postgresql")
        kinds = ("sqlite", "file", "postgresql", IN_MEMORY)
        if kind not in (None, *kinds):
            raise ValueError(f"{STORE_KIND_OPTION} is one of {', '.join(kinds)}, not {kind}")
        own = self.catalog_store
        if kind in ("file", IN_MEMORY) and "kind" in own.model_fields_set and own.kind != kind:
            raise ValueError(f"{STORE_KIND_OPTION} = {kind} contradicts catalog_store.kind")
        if kind == "postgresql" and not shared:
            raise ValueError(f"{STORE_KIND_OPTION} = postgresql needs store.url, of PostgreSQL")
        if kind in ("sqlite", "file") and shared:
            raise ValueError(f"{STORE_KIND_OPTION} = {kind} contradicts store.url")
        if path is not None and self.store.url:
            raise ValueError(f"{STORE_PATH_OPTION} contradicts store.url: set one of the two")
        return self

    @model_validator(mode="after")
    def _known_zone(self) -> Config:
        """Check that the server's time zones exist."""
        for zone in (self.timezone, self.session_timezone or "UTC"):
            if parse_zone(zone) is None:
                raise ValueError(f"there is no time zone {zone!r}")
        return self

    @model_validator(mode="after")
    def _separate_engines(self) -> Config:
        """Check the keys about engines of users, which have no effect without them."""
        engine = self.engine
        keys = ("users", "own_settings", "idle_timeout", "max_engines", "launcher", "account")
        given = [f"engine.{key}" for key in keys if key in engine.model_fields_set]
        if given and engine.share == "gateway":
            raise ValueError(f'{", ".join(given)} has no effect without engine.share = "user"')
        if "account" in engine.model_fields_set and not engine.launcher:
            raise ValueError("engine.account has no effect without engine.launcher")
        if "{user}" not in engine.account:
            raise ValueError("engine.account must contain {user}")
        if engine.launcher and not any("{account}" in word for word in engine.launcher):
            raise ValueError("engine.launcher must contain {account}")
        if engine.launcher and not engine.group_reads:
            raise ValueError(
                "engine.launcher needs engine.group_reads = true: the accounts of engines read "
                "the data directory as members of its group"
            )
        return self

    @model_validator(mode="after")
    def _valid_redaction(self) -> Config:
        """Check that the gateway can apply the pattern that hides secrets."""
        try:
            re.compile(self.engine.settings.get(REDACTION_KEY, ""))
        except re.error as problem:
            raise ValueError(
                f"{REDACTION_KEY} must be a regular expression of Python, too: {problem}"
            ) from problem
        return self

    @property
    def timezone(self) -> str:
        """The default time zone of schedules and date-formatters."""
        own = self.scheduler.timezone.strip()
        return own or self.engine.settings.get(SESSION_ZONE) or self.session_timezone or "UTC"

    @property
    def session_timezone(self) -> str | None:
        """The time zone in which sessions begin, by Flink's key; None leaves it to Spark."""
        zone = self.options.get(LOCAL_ZONE, UNSET)
        return None if zone.strip().lower() == UNSET else zone.strip()

    @property
    def scheduler_type(self) -> str:
        """The scheduler's type; Flink's key in ``options`` overrides the section."""
        return self.options.get(SCHEDULER_TYPE_OPTION, self.scheduler.type).strip()

    @property
    def fires_itself(self) -> bool:
        """Whether schedules are not fired by an external scheduler."""
        return self.scheduler_type in ("embedded", "none")

    @property
    def secret_variables(self) -> frozenset[str]:
        """The environment variables that contain secrets of this configuration."""
        return self._secret_variables

    @property
    def store_url(self) -> str:
        """The store's SQLAlchemy URL."""
        folder = Path(self.options.get(STORE_PATH_OPTION) or self.data)
        return self.store.url or f"sqlite:///{folder.resolve() / 'store.db'}"


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a setting, or all within a section, under names with dots and as texts."""
    if isinstance(value, dict) and len(value) == 1 and set(value) <= set(KINDS):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, bool):
        yield name, str(value).lower()
    else:
        yield name, str(value) if isinstance(value, int | float) else value


def _variables(given: Any) -> Iterator[str]:
    """Yield the names of the environment variables that a configuration refers to."""
    if not isinstance(given, dict):
        return
    for key, value in given.items():
        if key == "env" and isinstance(value, str) and len(given) == 1:
            yield value
        yield from _variables(value)


def _check_environment(environment: Mapping[str, str]) -> None:
    """Reject variables that look like keys but are not: pydantic would silently ignore them.

    Others may share the prefix, such as those that Kubernetes derives from a service's name.

    :raises ValueError: naming the variable and the nearest one that is a key.
    """
    sections = {_PREFIX + name.upper(): name for name in Config.model_fields}
    keys = {_PREFIX + f"{section}__{key}".upper() for section, key in _keys()}
    for variable in environment:
        folded = variable.upper()
        section = folded.removeprefix(_PREFIX).partition("__")[0]
        if not folded.startswith(_PREFIX) or _PREFIX + section in sections:
            continue
        flat = {key.replace("__", "_"): key for key in keys}
        meant = flat.get(folded) if "://" not in environment[variable] else None
        if meant is None and "__" in folded:
            meant = next(iter(difflib.get_close_matches(folded, keys, n=1)), "none of them")
        elif meant is None and "_" not in section:
            names = [name.removeprefix(_PREFIX) for name in sections]
            close = difflib.get_close_matches(section, names, n=1, cutoff=0.8)
            meant = _PREFIX + close[0] if close else None
        if meant is not None:
            raise ValueError(f"{variable} names no key; did you mean {meant}?")


def _keys() -> Iterator[tuple[str, str]]:
    for name, field in Config.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, _Section):
            yield from ((name, key) for key in section.model_fields)


def load_config(file: Path | None, overrides: dict[str, Any]) -> Config:
    """Read the layers and lay ``overrides`` (nested, from the command line) on top.

    :raises pydantic.ValidationError: naming each invalid or unknown key.
    :raises ValueError: naming an environment variable that looks like a key.
    :raises FileNotFoundError: if ``file`` is given and does not exist.
    """
    _check_environment(os.environ)
    if file is not None and not file.exists():
        raise FileNotFoundError(f"configuration file {file} does not exist")

    class Layered(Config):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            toml = TomlConfigSettingsSource(settings_cls, toml_file=file)
            return (init_settings, env_settings, toml)

    return Layered(**overrides)
