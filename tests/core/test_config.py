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
    check_server_options(config)


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
        ({"table.catalog-store.kind": "zookeeper"}, "", "is one of sqlite, file, postgresql"),
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
        ("execution.checkpointing.timeout", "1 s", Code.MT_OPTION_UNKNOWN, "no option"),
        ("kubernetes.cluster-id", "x", Code.MT_OPTION_VALUE, "[engines.NAME]"),
        ("refresh.retries", "1", Code.MT_OPTION_UNKNOWN, "materialized-table.refresh.retries"),
        ("materialized-table.trigger.exclude", "x", Code.MT_OPTION_VALUE, "WITH"),
        ("constraint.enforce", "FAIL", Code.MT_OPTION_VALUE, "WITH"),
        ("execution.mode", "yarn-session", Code.MT_EXECUTION_MODE, "master = 'yarn'"),
        ("table.materialized-table.conversion-from-table.enabled", "yes", Code.MT_OPTION_VALUE, ""),
        ("materialized-table.initialize", "NEVER", Code.MT_OPTION_VALUE, "ON_SCHEDULE"),
        ("spark.sql.ansi.enabled", "true", Code.MT_OPTION_VALUE, "engine.settings"),
        ("execution.mode", "local", Code.MT_EXECUTION_MODE, "embedded, remote"),
    ],
)
def test_options_that_nobody_reads_are_refused(key: str, value: str, code: Code, told: str) -> None:
    with pytest.raises(ServerError) as caught:
        check_server_options(Config(options={key: value}))
    assert caught.value.code == code.name
    assert told in f"{caught.value.message} {caught.value.hint}"


def test_a_scheduler_of_its_own_has_options_of_its_own() -> None:
    options = {"workflow-scheduler.type": "own", "workflow-scheduler.url": "http://x"}
    check_server_options(Config(options=options))
    with pytest.raises(ServerError, match="workflow-scheduler.typ") as caught:
        check_server_options(Config(options={**options, "workflow-scheduler.typ": "own"}))
    assert caught.value.hint == "Did you mean workflow-scheduler.type?"


SECRET = "hush\n"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


def test_secrets_are_read_from_files_and_variables(
    secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_KEY", "hidden")
    from_file, from_variable = {"file": str(secret_file)}, {"env": "HOUSE_KEY"}
    config = load_config(
        None,
        {
            "engine": {"settings": {"fs.s3a.secret.key": from_variable, "a.b": "c"}},
            "store": {"url": from_file},
            "server": {"http_token": from_file},
            "alerts": {"webhook": from_file, "webhook_headers": {"Authorization": from_file}},
            "login": {"custom_options": {"door": from_file}},
            "options": {"workflow-scheduler.password": from_file},
            "workflow-scheduler": {"token": from_variable},
        },
    )
    assert config.engine.settings == {"fs.s3a.secret.key": "hidden", "a.b": "c"}
    assert config.store.url == config.server.http_token == config.alerts.webhook == "hush"
    assert config.alerts.webhook_headers == {"Authorization": "hush"}
    assert config.login.custom_options == {"door": "hush"}
    assert config.options == {
        "workflow-scheduler.password": "hush",
        "workflow-scheduler.token": "hidden",
    }
    assert config.secret_variables == {"HOUSE_KEY"}
    assert "hush" not in repr(config)
    assert "hidden" not in repr(config)


def test_a_variable_may_name_the_file(secret_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_STORE__URL__FILE", str(secret_file))
    assert load_config(None, {}).store.url == "hush"


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ({"file": "/nowhere/secret"}, "/nowhere/secret cannot be read: No such file"),
        ({"env": "HOUSE_NOT_SET"}, "HOUSE_NOT_SET is not set"),
        ({"fil": "x"}, "expected a text"),
        ({"file": ""}, "expected a text"),
        ({"file": "x", "env": "Y"}, "expected a text"),
        ({}, "expected a text"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(reference: dict[str, str], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        load_config(None, {"store": {"url": reference}})


@pytest.mark.parametrize("rights", [0o644, 0o604])
def test_a_file_that_others_can_read_is_refused(secret_file: Path, rights: int) -> None:
    secret_file.chmod(rights)
    with pytest.raises(ValidationError, match="can be accessed by every user") as caught:
        load_config(None, {"store": {"url": {"file": str(secret_file)}}})
    assert f"chmod 600 {secret_file}" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ({"launcher": ["sudo", "{account}"]}, "engine.launcher has no effect without engine.share"),
        ({"users": {"ann": {}}}, "engine.users has no effect without engine.share"),
        ({"own_settings": {}, "max_engines": 2}, "engine.own_settings, engine.max_engines has no"),
        ({"share": "user", "account": "tg-{user}"}, "engine.account has no effect without"),
        ({"share": "user", "account": "one", "launcher": ["{account}"]}, "must contain {user}"),
        ({"share": "user", "launcher": ["sudo"]}, "engine.launcher must contain {account}"),
        ({"share": "user", "launcher": ["{account}"]}, "needs engine.group_reads = true"),
    ],
)
def test_a_key_about_engines_of_users_without_effect_is_told(
    engine: dict[str, object], told: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"engine": engine})
    assert told in str(caught.value)


def test_settings_of_a_user_may_be_references(secret_file: Path) -> None:
    key = "spark.hadoop.fs.s3a.secret.key"
    users = {"ann.b": {"settings": {key: {"file": str(secret_file)}}}}
    config = Config.model_validate({"engine": {"share": "user", "users": users}})
    assert config.engine.users["ann.b"].settings[key] == secret_file.read_text().strip()
    assert secret_file.read_text().strip() not in repr(config)
