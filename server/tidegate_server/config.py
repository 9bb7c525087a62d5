"""The server's configuration: defaults < TOML file < environment < command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSection(_Section):
    """The listening side."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 10000
    auth: Literal["NONE"] = "NONE"
    insecure: bool = False
    """Allow a non-loopback address without authentication."""
    workers: Annotated[int, Field(ge=1)] = 32
    """Threads that run statements and encode results."""
    max_sessions: Annotated[int, Field(ge=1)] = 2000
    session_idle_timeout: Annotated[float, Field(gt=0)] = 6 * 3600.0
    """Seconds without a call or running work after which a session is closed."""
    login_timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds a connection may take until its first complete request."""
    disconnect_grace: Annotated[float, Field(ge=0)] = 30.0
    """Seconds for which the sessions of a broken connection can be used from a new one."""
    max_request_bytes: Annotated[int, Field(ge=1024)] = 64 << 20
    max_reply_bytes: Annotated[int, Field(ge=64 << 10)] = 8 << 20
    fetch_size: Annotated[int, Field(ge=1)] = 10_000
    """Rows per fetch suggested to clients."""


class EngineSection(_Section):
    """The Spark side."""

    master: str = "local[*]"
    driver_memory: str = "2g"
    settings: dict[str, str] = Field(default_factory=dict)
    """Further Spark settings of the engine's session."""
    start_timeout: Annotated[float, Field(gt=0)] = 300.0
    inline_bytes: Annotated[int, Field(ge=0)] = 1 << 20
    direct_bytes: Annotated[int, Field(ge=1 << 20)] = 32 << 20
    """Results up to this estimated size are collected; larger ones are spooled."""
    spool_quota: Annotated[int, Field(ge=1 << 20)] = 64 << 30


class SchedulerSection(_Section):
    """The embedded scheduler and the watching of sources."""

    type: Literal["embedded", "none"] = "embedded"
    poll_interval: Annotated[float, Field(gt=0)] = 0.5
    """Seconds between looks for due workflows and changed sources."""
    lease: Annotated[float, Field(gt=1)] = 30.0
    """Seconds a claim on a table lasts unless extended."""
    max_concurrent: Annotated[int, Field(ge=1)] = 2
    """Refreshes that run at the same time."""
    timezone: str = "UTC"
    history_days: Annotated[float, Field(gt=0)] = 90.0
    """Days for which the record of a refresh is kept."""


class StoreSection(_Section):
    """The relational database."""

    url: str = ""
    """SQLAlchemy URL; empty means SQLite in the data directory."""


class Config(BaseSettings):
    """Everything a gateway is told, frozen; environment names look like TIDEGATE_SERVER__PORT."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="TIDEGATE_", env_nested_delimiter="__"
    )

    data: Path = Path("tidegate-data")
    """Directory of the store, the warehouse, the metastore, the spool and the logs."""
    server: ServerSection = ServerSection()
    engine: EngineSection = EngineSection()
    scheduler: SchedulerSection = SchedulerSection()
    store: StoreSection = StoreSection()
    options: dict[str, str] = Field(default_factory=dict)
    """Server-wide defaults of materialized-table.* and workflow-scheduler.* options."""

    @property
    def store_url(self) -> str:
        """The store's SQLAlchemy URL."""
        return self.store.url or f"sqlite:///{self.data.resolve() / 'store.db'}"


def load_config(file: Path | None, overrides: dict[str, Any]) -> Config:
    """Read the layers and lay ``overrides`` (nested, from the command line) on top.

    :raises pydantic.ValidationError: naming each unusable or unknown key.
    :raises FileNotFoundError: if ``file`` is given and does not exist.
    """
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
