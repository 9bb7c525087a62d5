"""The sections of the configuration, frozen; :mod:`tidegate_server.core.config` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tidegate_server.core.model.privileges import PUBLIC_ROLE
from tidegate_server.core.secret_references import Secret


class Section(BaseModel):
    """A section, which rejects unknown keys."""

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


class ServerSection(Section):
    """The listening side."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 10000
    socket: str = ""
    """Path of a Unix socket to listen on instead of ``host`` and ``port``."""
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
    flight_port: Annotated[int, Field(ge=-1, le=65535)] = -1
    """Port of Arrow Flight SQL; -1 means none."""

    @property
    def rest_port(self) -> int | None:
        """The port of the REST interface; None means none.

        Unless configured it follows ``port``, so that two gateways on one machine need to differ
        in one key only. A server on a socket has none.
        """
        configured = "http_port" in self.model_fields_set
        if self.http_port == -1 or (self.socket and not configured):
            return None
        if configured:
            return self.http_port
        return 0 if self.port == 0 or self.port > 65533 else self.port + 2


class LoginSection(Section):
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


class LdapSection(Section):
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


class JwtSection(Section):
    """The bearer tokens that the HTTP transport accepts."""

    jwks: str = ""
    """File or URL of the keys that sign tokens; empty means no token is accepted."""
    issuer: str = ""
    audience: str = ""
    user_claim: str = "sub"
    groups_claim: str = ""
    """Claim with the list of the user's groups; empty means that groups are not used."""


class KerberosSection(Section):
    """The service's identity in a Kerberos realm."""

    keytab: str = ""
    """File with the service's keys."""
    realm: str = ""
    """Realm whose principals are shortened to their first part."""
    qop: Literal["auth", "auth-int", "auth-conf"] = "auth"
    """Minimum protection for binary clients."""


class TlsSection(Section):
    """Encryption of the Thrift port."""

    certificate: str = ""
    """PEM file of the certificate with its chain; empty means no TLS."""
    key: str = ""
    require: bool = False
    """Reject connections without TLS."""
    client_ca: str = ""
    """PEM file of the authorities of accepted client certificates."""
    client_certificates: Literal["optional", "required"] = "optional"


class HttpSection(Section):
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


class ProxySection(Section):
    """The users that one user may impersonate."""

    users: tuple[str, ...] = ()
    """Names, or ``*`` for all."""
    hosts: tuple[str, ...] = ()
    """Allowed client addresses and networks; none means any."""


def _existing_files(jars: tuple[str, ...]) -> tuple[str, ...]:
    """Reject what is no file, which Java would ignore."""
    missing = [jar for jar in jars if not Path(jar).is_file()]
    if missing:
        raise ValueError(f"{missing[0]} is not a file")
    return tuple(str(Path(jar).resolve()) for jar in jars)


def mode_of(master: str, *, application: bool = False) -> str:
    """Return the execution mode of a Spark master, in Flink's words.

    :raises ValueError: if it is no master of Spark.
    """
    cluster = master.lower()
    kind = "application" if application else "session"
    if cluster.startswith("local"):
        return "embedded"
    if cluster.startswith("spark://"):
        return "remote"
    if cluster == "yarn":
        return f"yarn-{kind}"
    if cluster.startswith("k8s://"):
        return f"kubernetes-{kind}"
    raise ValueError(
        f"{master} is no Spark master: write local[N], spark://host:port, yarn or "
        "k8s://https://host:port"
    )


class EngineUserSection(Section):
    """What the engine of one user gets."""

    settings: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Spark settings of this user's engine alone, such as storage credentials."""


class EngineSection(Section):
    """The Spark side."""

    master: str = "local[*]"
    driver_memory: str = "auto"
    """In Spark's notation; ``auto`` is a share of the machine's memory."""
    shared_data: bool = False
    """Whether all machines of ``master`` have the data directory mounted at the same path."""
    shared_warehouse: bool = False
    """Whether they have the warehouse, a directory, mounted at the same path."""
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
    executor_timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for which work waits for the first executor of a cluster."""
    max_statement_bytes: Annotated[int, Field(ge=0)] = 16 << 20
    """Size of a statement's text, in UTF-8 and with variables replaced; 0 means no limit."""
    max_statement_tokens: Annotated[int, Field(ge=0)] = 250_000
    """Words, numbers, literals and signs of a statement's text; 0 means no limit."""
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

    _jars = field_validator("jars")(_existing_files)

    @field_validator("master")
    @classmethod
    def _known_master(cls, master: str) -> str:
        """Reject what Spark would reject when it starts."""
        mode_of(master)
        return master


class EngineTargetSection(Section):
    """An engine beside the gateway's own, which refreshes the tables that choose it."""

    master: str
    """Its Spark master, which also determines the execution mode that it is for."""
    application: bool = False
    """Whether each table gets an engine of its own, instead of sharing one."""
    deploy_mode: Literal["client", "cluster"] = "client"
    """Where the engine's own process runs: on the server's machine, or in the cluster."""
    cluster_id: str = ""
    """The cluster as ``kubernetes.cluster-id`` or ``yarn.application.id`` names it; empty means
    the name of the section."""
    driver_memory: str = ""
    """Empty means that of ``engine.driver_memory``."""
    jars: tuple[str, ...] = ()
    """Jars beyond ``engine.jars``."""
    settings: dict[str, Secret] = Field(default_factory=dict, repr=False)
    """Spark settings beyond ``engine.settings``."""
    idle_timeout: Annotated[float, Field(gt=0)] = 900.0
    """Seconds after which the engine ends if it is not used."""
    max_engines: Annotated[int, Field(ge=1)] = 8
    """With ``application``, how many engines run at the same time."""

    _jars = field_validator("jars")(_existing_files)

    @property
    def mode(self) -> str:
        """The execution mode that it is for, in Flink's words."""
        return mode_of(self.master, application=self.application)

    @model_validator(mode="after")
    def _known_mode(self) -> EngineTargetSection:
        """Check what depends on the master."""
        mode = self.mode
        if self.application and not mode.endswith("-application"):
            raise ValueError("application = true is for masters of YARN and Kubernetes")
        if not self.application and "max_engines" in self.model_fields_set:
            raise ValueError("max_engines has no effect without application = true")
        if self.deploy_mode == "cluster" and not mode.startswith(("yarn", "kubernetes")):
            why = ": a standalone cluster runs no drivers in Python" if mode == "remote" else ""
            raise ValueError(f"deploy_mode = cluster is for masters of YARN and Kubernetes{why}")
        if self.cluster_id and not mode.endswith("-session"):
            raise ValueError("cluster_id is for sessions on YARN and Kubernetes")
        return self


class RegistrationSection(Section):
    """Where engines whose process runs in a cluster connect to the gateway."""

    host: str = "0.0.0.0"
    port: Annotated[int, Field(ge=0, le=65535)] = 10003
    """0 takes any free port; engines then do not find the gateway again when it is restarted."""
    address: str = ""
    """The host by which the machines of clusters reach this one; empty means its full name."""
    lease: Annotated[float, Field(ge=5)] = 120.0
    """Seconds for which such an engine lives on while it does not reach the gateway."""


class SchedulerSection(Section):
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


class LoggingSection(Section):
    """The gateway's log."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    format: Literal["json", "text"] = "json"
    console: bool = False
    """Write the lines to standard error as well."""


class AuthorizationSection(Section):
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


class AuditSection(Section):
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


class AlertsSection(Section):
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


class CatalogStoreSection(Section):
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


class StoreSection(Section):
    """The relational database."""

    url: Secret = Field(default="", repr=False)
    """SQLAlchemy URL; empty means SQLite in the data directory."""
