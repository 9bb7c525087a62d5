from __future__ import annotations

import pytest

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.gateway.session.configuration import (
    ResultFormat,
    SessionOptions,
    normalise,
)


def test_no_configuration_means_the_defaults() -> None:
    assert normalise(None) == SessionOptions()


def test_use_database_names_the_schema() -> None:
    assert normalise({"use:database": "sales"}).schema == "sales"


def test_an_empty_use_database_is_left_out() -> None:
    assert normalise({"use:database": ""}).schema is None


def test_hiveconf_sets_a_setting_without_its_prefix() -> None:
    options = normalise({"set:hiveconf:spark.sql.ansi.enabled": "false"})
    assert options.settings == {"spark.sql.ansi.enabled": "false"}


def test_hivevar_sets_a_variable_without_its_prefix() -> None:
    assert normalise({"set:hivevar:day": "2026-01-01"}).settings == {"day": "2026-01-01"}


@pytest.mark.parametrize("key", ["set:system:user.dir", "set:env:PATH"])
def test_properties_and_environment_of_the_server_are_refused(key: str) -> None:
    with pytest.raises(ServerError, match=key) as caught:
        normalise({key: "x"})
    assert caught.value.code == Code.NOT_SUPPORTED.name


def test_a_bare_key_is_a_setting() -> None:
    assert normalise({"execution.mode": "embedded"}).settings == {"execution.mode": "embedded"}


def test_the_proxy_user_is_told_apart() -> None:
    for key in ("hive.server2.proxy.user", "set:hiveconf:hive.server2.proxy.user"):
        options = normalise({key: "eva"})
        assert (options.proxy_user, options.settings) == ("eva", {})


def test_what_spark_takes_and_never_uses_is_left_out_with_a_warning() -> None:
    options = normalise({"spark.app.name": "report"})
    assert options.settings == {}
    assert options.warnings == (
        "spark.app.name changes nothing here: it is fixed when the engine starts",
    )


def test_what_spark_refuses_is_left_to_spark() -> None:
    given = {"spark.driver.memory": "8g"}
    assert normalise(given) == SessionOptions(settings=given)


@pytest.mark.parametrize(
    ("key", "value", "code", "said"),
    [
        ("tidegate.result.format", "xml", Code.MT_OPTION_VALUE, "thrift, arrow"),
        ("tidegate.result.set", "sometimes", Code.MT_OPTION_VALUE, "always, never"),
        ("tidegate.show.tables", "flink", Code.MT_OPTION_VALUE, "hive, spark"),
        ("tidegate.result.formats", "arrow", Code.MT_OPTION_UNKNOWN, "tidegate.result.format"),
        ("set:hiveconf:tidegate.color", "red", Code.MT_OPTION_UNKNOWN, "tidegate.show.tables"),
    ],
)
def test_own_entries_are_known_by_name_and_value(
    key: str, value: str, code: Code, said: str
) -> None:
    with pytest.raises(ServerError) as caught:
        normalise({key: value})
    assert caught.value.code == code.name
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_what_clients_tell_of_themselves_is_not_passed_on() -> None:
    given = {"set:hivevar:wmpool": "p", "set:hiveconf:hive.server2.logging": "x"}
    assert normalise(given).settings == {}


def test_a_chosen_fetch_size_is_kept_and_the_default_one_is_not() -> None:
    key = "set:hiveconf:hive.server2.thrift.resultset.default.fetch.size"
    assert normalise({key: "77"}).fetch_size == 77
    assert normalise({key: "1000"}).fetch_size is None
    assert normalise({key: "many"}).fetch_size is None


def test_arrow_is_negotiated_by_its_key() -> None:
    assert normalise({"tidegate.result.format": "ARROW"}).result_format is ResultFormat.ARROW
    assert normalise({"tidegate.result.format": "thrift"}).result_format is ResultFormat.THRIFT


def test_a_result_set_can_be_asked_for_always() -> None:
    assert normalise({"tidegate.result.set": "always"}).always_result_set


@pytest.mark.parametrize("key", ["tidegate.show.tables", "set:hiveconf:tidegate.show.tables"])
def test_lists_of_names_can_be_hives(key: str) -> None:
    options = normalise({key: "hive"})
    assert options.lists_names_alone
    assert not options.settings
    assert not normalise({}).lists_names_alone
