"""The command line of tidegate-server, up to the point where it would start."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate_server import __main__ as command
from tidegate_server.core.config import Config
from tidegate_server.gateway.link import java


@pytest.fixture
def served_configs(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that would have been served."""
    configs: list[Config] = []

    def serve(config: Config, java: java.Java, options: argparse.Namespace) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(command, "_serve", serve)
    return configs


@pytest.fixture
def start_refusal(
    served_configs: list[Config], capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], str]:
    """Runs the command and returns why it did not start."""

    def refuse(arguments: list[str]) -> str:
        assert command.main(arguments) == 2
        assert served_configs == []
        return capsys.readouterr().err

    return refuse


def test_options_reach_the_configuration(served_configs: list[Config]) -> None:
    code = command.main(["--data", "/somewhere", "--port", "10009", "--set", "engine.master=local"])
    assert code == 0
    assert served_configs[0].data == Path("/somewhere")
    assert served_configs[0].server.port == 10009
    assert served_configs[0].engine.master == "local"


def test_options_of_spark_and_of_tables_keep_their_dots(served_configs: list[Config]) -> None:
    command.main(
        [
            "--set=engine.settings.spark.sql.ansi.enabled=false",
            "--set=options.materialized-table.refresh-mode.freshness-threshold=10 min",
        ]
    )
    assert served_configs[0].engine.settings == {"spark.sql.ansi.enabled": "false"}
    assert served_configs[0].options == {
        "materialized-table.refresh-mode.freshness-threshold": "10 min"
    }


def test_the_command_line_wins_over_environment_and_file(
    served_configs: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text('[server]\nport = 1\nworkers = 7\n[engine]\nmaster = "local[3]"\n')
    monkeypatch.setenv("TIDEGATE_SERVER__PORT", "2")
    monkeypatch.setenv("TIDEGATE_SERVER__WORKERS", "8")
    command.main(["--config", str(file), "--port", "3"])
    assert served_configs[0].server.port == 3
    assert served_configs[0].server.workers == 8
    assert served_configs[0].engine.master == "local[3]"


def test_an_unknown_key_is_answered_with_the_nearest_known_one(
    start_refusal: Callable[[list[str]], str],
) -> None:
    told = start_refusal(["--set", "server.prot=10009"])
    assert told == ("tidegate-server: Unknown configuration key server.prot: did you mean port?\n")


@pytest.mark.parametrize(
    ("variable", "value", "meant"),
    [
        ("TIDEGATE_SERVER__PROT", "10009", "did you mean port?"),
        ("TIDEGATE_SERVR__PORT", "10009", "did you mean TIDEGATE_SERVER__PORT?"),
        ("TIDEGATE_SERVER_PORT", "10009", "did you mean TIDEGATE_SERVER__PORT?"),
        ("TIDEGATE_DATTA", "/srv", "did you mean TIDEGATE_DATA?"),
    ],
)
def test_a_misspelt_variable_is_answered_with_the_nearest_key(
    start_refusal: Callable[[list[str]], str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    meant: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert meant in start_refusal([])


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDEGATE_SERVER_PORT", "tcp://10.0.0.1:10000"),
        ("TIDEGATE_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_CACHE", "/var/cache/tidegate"),
        ("TIDEGATE_FAULTS", "BEFORE_COMMIT"),
    ],
)
def test_variables_that_are_no_keys_are_left_alone(
    served_configs: list[Config], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    command.main([])
    assert served_configs[0].server.port == 10000


def test_a_section_of_flinks_is_among_the_nearest(
    start_refusal: Callable[[list[str]], str],
) -> None:
    told = start_refusal(["--set", "workflow-schedulr.type=none"])
    assert "did you mean workflow-scheduler?" in told


def test_each_unusable_value_is_named_with_its_key(
    start_refusal: Callable[[list[str]], str],
) -> None:
    told = start_refusal(["--port", "many", "--set", "scheduler.lease=0"])
    assert "Configuration key server.port cannot be 'many'" in told
    assert "Configuration key scheduler.lease cannot be '0'" in told


def test_a_setting_without_a_value_is_refused(start_refusal: Callable[[list[str]], str]) -> None:
    assert "expected SECTION.KEY=VALUE" in start_refusal(["--set", "server.port"])


def test_a_setting_under_a_plain_value_is_refused(
    start_refusal: Callable[[list[str]], str],
) -> None:
    told = start_refusal(["--set", "server.port=1", "--set", "server.port.x=1"])
    assert "server.port.x cannot be set" in told


def test_a_missing_configuration_file_is_named(start_refusal: Callable[[list[str]], str]) -> None:
    assert "nowhere.toml does not exist" in start_refusal(["--config", "nowhere.toml"])


def test_a_file_that_is_no_toml_is_refused(
    start_refusal: Callable[[list[str]], str], tmp_path: Path
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[server\n")
    assert "cannot be read" in start_refusal(["--config", str(file)])


def test_without_java_nothing_starts(
    start_refusal: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> java.Java:
        raise java.JavaMissingError("Spark needs Java 17 or 21: install it.")

    monkeypatch.setattr(java, "find_java", none)
    assert start_refusal([]) == "tidegate-server: Spark needs Java 17 or 21: install it.\n"


def test_without_the_extra_one_sentence_says_what_to_install(
    start_refusal: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "NEEDED", ("pyarrow", "no_such_package"))
    told = start_refusal([])
    assert "pip install 'tidegate[server]' (missing: no_such_package)" in told
    assert told.count("\n") == 1


def test_help_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    assert "beeline -u jdbc:hive2://127.0.0.1:10000/" in capsys.readouterr().out


def nested_overrides(*arguments: str) -> dict[str, Any]:
    return command.overrides(command._parser().parse_args(list(arguments)))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ('authorization.allow=["paths", "locations"]', ["paths", "locations"]),
        ("authorization.allow=[]", []),
        ("server.host=[::1]", "[::1]"),
        ("secrets.crm={ file = '/run/crm' }", {"file": "/run/crm"}),
        ("engine.settings.spark.x=[1]", None),
    ],
)
def test_lists_and_tables_are_toml(setting: str, value: object) -> None:
    ((_, section),) = nested_overrides("--set", setting).items()
    if value is None:
        assert section == {"settings": {"spark.x": "[1]"}}
    else:
        assert list(section.values()) == [value]


def test_what_is_not_given_is_not_overridden() -> None:
    assert nested_overrides() == {}
