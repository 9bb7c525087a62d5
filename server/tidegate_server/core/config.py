"""The server's configuration: defaults < TOML file < environment < command line."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tidegate_server.core.config_sections import (
    AlertsSection,
    AuditSection,
    AuthorizationSection,
    CatalogStoreSection,
    EngineSection,
    EngineTargetSection,
    HttpSection,
    JwtSection,
    KerberosSection,
    LdapSection,
    LoggingSection,
    LoginSection,
    ProxySection,
    RegistrationSection,
    SchedulerSection,
    Section,
    ServerSection,
    StoreSection,
    TlsSection,
)
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
_ENGINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
FLINKS_SECTIONS = ("workflow-scheduler", "table", "materialized-table")


class Config(BaseSettings):
    """The whole configuration, frozen; environment names look like TIDEGATE_SERVER__PORT."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=_PREFIX, env_nested_delimiter="__"
    )

    data: Path = Path("tidegate-data")
    """Directory of the store, the warehouse, the metastore, the spool and the logs."""
    server: ServerSection = ServerSection()
    engine: EngineSection = EngineSection()
    engines: dict[str, EngineTargetSection] = Field(default_factory=dict)
    """Engines beside the gateway's own, by the name that ``execution.engine`` refers to."""
    registration: RegistrationSection = RegistrationSection()
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
    def _named_engines(self) -> Config:
        """Check the sections of engines beside the gateway's own."""
        if self.engines and self.engine.share == "user":
            raise ValueError(
                '[engines.NAME] cannot be used with engine.share = "user": an engine of several '
                "tables would run the queries of several users"
            )
        for name in self.engines:
            if not _ENGINE_NAME.fullmatch(name):
                raise ValueError(
                    f"[engines.{name}]: a name has up to 63 letters, digits, '-' and '_'"
                )
        if len({name.lower() for name in self.engines}) < len(self.engines):
            raise ValueError("the names of [engines.NAME] must differ in more than case")
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
        if isinstance(section, type) and issubclass(section, Section):
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
