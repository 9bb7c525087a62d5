"""The configuration takes Flink's names of settings for those of its own that mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tidegate_server.core.config import Config, load_config
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.gateway.options import check_server_options

FLINKS = """
[workflow-scheduler]
type = "none"

[table.catalog-store]
kind = "file"

[table.catalog-store.file]
path = "{folder}"

[table.materialized-table.conversion-from-table]
enabled = true

[options]
"materialized-table.refresh.max-concurrent" = 5
"""


def test_flinks_sections_are_read(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text(FLINKS.format(folder=tmp_path / "catalogs"), encoding="utf-8")
    config = load_config(file, {"data": str(tmp_path / "data")})
    assert config.scheduler_type == "none"
    assert config.store_url == f"sqlite:///{tmp_path / 'catalogs' / 'store.db'}"
    assert config.scheduler.max_concurrent == 5
    assert config.options["table.materialized-table.conversion-from-table.enabled"] == "true"
    check_server_options(config.options)


@pytest.mark.parametrize(
    "given",
    [
        {"workflow-scheduler": {"type": "none"}},
        {"workflow-scheduler.type": "none"},
        {"options": {"workflow-scheduler.type": "none"}},
    ],
)
def test_a_key_may_be_written_with_dots_or_as_sections(given: dict[str, object]) -> None:
    assert load_config(None, given).scheduler_type == "none"


@pytest.mark.parametrize(
    ("options", "url", "told"),
    [
        ({"table.catalog-store.kind": "generic_in_memory"}, "", "is sqlite, file or postgresql"),
        ({"table.catalog-store.kind": "postgresql"}, "", "needs store.url"),
        ({"table.catalog-store.kind": "file"}, "postgresql://db/t", "contradicts store.url"),
        ({"table.catalog-store.file.path": "x"}, "sqlite:///y.db", "set one of the two"),
        ({"materialized-table.refresh.max-concurrent": "many"}, "", "valid integer"),
    ],
)
def test_a_contradiction_is_told(options: dict[str, str], url: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Config(options=options, store={"url": url})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "code", "told"),
    [
        ("materialized-table.initialise", "ON_CREATE", Code.MT_OPTION_UNKNOWN, "no option"),
        ("table.catalog-store.kinnd", "file", Code.MT_OPTION_UNKNOWN, "table.catalog-store.kind"),
        ("workflow-scheduler.typ", "none", Code.MT_OPTION_UNKNOWN, "workflow-scheduler.type"),
        ("workflow-scheduler.url", "x", Code.MT_OPTION_UNKNOWN, "no option"),
        ("table.exec.mini-batch.enabled", "true", Code.MT_OPTION_UNKNOWN, "no option"),
        ("execution.checkpointing.interval", "1 s", Code.MT_OPTION_UNKNOWN, "no option"),
        ("kubernetes.cluster-id", "x", Code.MT_OPTION_UNKNOWN, "no option"),
        ("refresh.retries", "1", Code.MT_OPTION_UNKNOWN, "materialized-table.refresh.retries"),
        ("materialized-table.trigger.exclude", "x", Code.MT_OPTION_VALUE, "WITH"),
        ("constraint.enforce", "FAIL", Code.MT_OPTION_VALUE, "WITH"),
        ("execution.mode", "yarn-session", Code.MT_EXECUTION_MODE, "embedded, remote"),
        ("table.materialized-table.conversion-from-table.enabled", "yes", Code.MT_OPTION_VALUE, ""),
        ("materialized-table.initialize", "NEVER", Code.MT_OPTION_VALUE, "ON_SCHEDULE"),
        ("spark.sql.ansi.enabled", "true", Code.MT_OPTION_VALUE, "engine.settings"),
        ("execution.mode", "local", Code.MT_EXECUTION_MODE, "embedded, remote"),
    ],
)
def test_options_that_nobody_reads_are_refused(key: str, value: str, code: Code, told: str) -> None:
    with pytest.raises(ServerError) as caught:
        check_server_options({key: value})
    assert caught.value.code == code.name
    assert told in f"{caught.value.message} {caught.value.hint}"


def test_a_scheduler_of_its_own_has_options_of_its_own() -> None:
    options = {"workflow-scheduler.type": "own", "workflow-scheduler.url": "http://x"}
    check_server_options(options, embedded=False)
    with pytest.raises(ServerError, match="workflow-scheduler.typ") as caught:
        check_server_options({"workflow-scheduler.typ": "own"}, embedded=False)
    assert caught.value.hint == "Did you mean workflow-scheduler.type?"
