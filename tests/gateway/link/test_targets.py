"""Which engine a table gets for the modes and clusters that a session sets."""

from __future__ import annotations

import pytest

from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import EngineTargetSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.link.targets import (
    Target,
    change_target,
    check_mode,
    choose_target,
    read_target,
    reset_target,
)

K8S = "k8s://https://head:6443"
ENGINES = {
    "spark": EngineTargetSection(master="spark://head:7077"),
    "big": EngineTargetSection(master="local[8]"),
    "pods": EngineTargetSection(master=K8S, cluster_id="cluster-mt-1"),
    "more-pods": EngineTargetSection(master=K8S),
    "own-pods": EngineTargetSection(master=K8S, application=True),
    "queue": EngineTargetSection(master="yarn", application=True),
}


def chosen(master: str = "local[*]", engines: object = None, **settings: str) -> str:
    """Return the stored form of a target; ``_`` stands for the dots of options."""
    given = {key.replace("__", "-").replace("_", "."): value for key, value in settings.items()}
    sections = ENGINES if engines is None else engines
    return str(choose_target(given.get, sections, master, lambda: "0123456789abcdef"))


@pytest.mark.parametrize(
    ("settings", "stored"),
    [
        ({}, "embedded"),
        ({"execution_mode": "embedded"}, "embedded"),
        ({"execution_mode": "Remote"}, "remote/spark"),
        ({"execution_engine": "BIG"}, "embedded/big"),
        (
            {"execution_mode": "kubernetes-session", "kubernetes_cluster__id": "cluster-mt-1"},
            "kubernetes-session/pods",
        ),
        (
            {"execution_mode": "kubernetes-session", "kubernetes_cluster__id": "more-pods"},
            "kubernetes-session/more-pods",
        ),
        (
            {"execution_mode": "kubernetes-application", "kubernetes_cluster__id": "mine-1"},
            "kubernetes-application/own-pods/mine-1",
        ),
        (
            {"execution_mode": "kubernetes-application"},
            "kubernetes-application/own-pods/tidegate-01234567",
        ),
        ({"execution_mode": "yarn-application"}, "yarn-application/queue/tidegate-01234567"),
    ],
)
def test_settings_choose_an_engine(settings: dict[str, str], stored: str) -> None:
    assert chosen(**settings) == stored
    assert str(read_target(stored)) == stored


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"execution_mode": "kubernetes-session"}, "SET 'execution.engine' to one of more-pods"),
        (
            {"execution_mode": "kubernetes-session", "kubernetes_cluster__id": "gone"},
            "the configuration has cluster-mt-1, more-pods",
        ),
        (
            {"execution_mode": "kubernetes-application", "kubernetes_cluster__id": "Mine_1"},
            "lower-case letters",
        ),
        ({"execution_mode": "yarn-session"}, "master = 'yarn'"),
        ({"execution_mode": "local"}, "The modes are embedded, remote"),
        ({"execution_mode": "kubernetes-sesion"}, "Did you mean kubernetes-session?"),
        ({"execution_engine": "sparc"}, "did you mean spark?"),
        ({"execution_engine": "spark", "execution_mode": "yarn-session"}, "its mode is remote"),
    ],
)
def test_what_cannot_be_chosen_is_rejected(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ServerError) as caught:
        chosen(**settings)
    assert message in f"{caught.value.message} {caught.value.hint}"


def altered(stored: str, **options: str) -> str:
    """Return the stored form of a table's target after ALTER ... SET."""
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    current = read_target(stored)
    return str(change_target(current, given, ENGINES, "local[*]", lambda: "0123456789abcdef"))


@pytest.mark.parametrize(
    ("stored", "options", "changed"),
    [
        ("embedded", {"execution_engine": "Big"}, "embedded/big"),
        ("embedded/big", {"execution_mode": "remote"}, "remote/spark"),
        ("remote/spark", {"execution_mode": "embedded"}, "embedded"),
        (
            "kubernetes-application/own-pods/mine",
            {"kubernetes_cluster__id": "other"},
            "kubernetes-application/own-pods/other",
        ),
        (
            "kubernetes-application/own-pods/mine",
            {"execution_engine": "own-pods"},
            "kubernetes-application/own-pods/mine",
        ),
        (
            "remote/spark",
            {"execution_mode": "kubernetes-session", "kubernetes_cluster__id": "cluster-mt-1"},
            "kubernetes-session/pods",
        ),
        (
            "remote/spark",
            {"execution_engine": "own-pods"},
            "kubernetes-application/own-pods/tidegate-01234567",
        ),
    ],
)
def test_a_table_is_moved(stored: str, options: dict[str, str], changed: str) -> None:
    assert altered(stored, **options) == changed


@pytest.mark.parametrize(
    ("stored", "options", "message"),
    [
        ("embedded", {"kubernetes_cluster__id": "c"}, "has no such cluster"),
        ("remote/spark", {"yarn_application_id": "application_1"}, "has no such cluster"),
        (
            "embedded",
            {"execution_engine": "more-pods", "kubernetes_cluster__id": "cluster-mt-1"},
            "the engine kubernetes-session/more-pods has no such cluster",
        ),
        (
            "embedded",
            {"execution_engine": "queue", "yarn_application_id": "mine"},
            "has no such cluster",
        ),
        ("remote/spark", {"execution_engine": "bigg"}, "did you mean big?"),
    ],
)
def test_a_table_is_not_moved_where_there_is_nothing(
    stored: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ServerError, match="MT_OPTION_VALUE") as caught:
        altered(stored, **options)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("master", "reason"),
    [("spark://head:7077", "runs no drivers in Python"), ("local[2]", "is for masters of YARN")],
)
def test_a_driver_in_the_cluster_needs_one_that_can_run_it(master: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EngineTargetSection(master=master, deploy_mode="cluster")


def test_without_its_engine_a_table_is_the_gateways_own() -> None:
    own = read_target("kubernetes-application/own-pods/mine")
    assert reset_target(own, ["execution.engine", "kubernetes.cluster-id"]) == Target()
    assert reset_target(own, ["format", "yarn.application.id"]) == own
    with pytest.raises(ServerError, match="moves the table"):
        reset_target(own, ["kubernetes.cluster-id"])


def test_without_sections_a_mode_means_the_gateways_own_engine() -> None:
    assert chosen(engines={}, execution_mode="remote") == "remote"
    assert chosen("yarn", engines={}, execution_mode="yarn-application") == "yarn-application"
    check_mode("kubernetes-session", {}, K8S)
    with pytest.raises(ServerError):
        check_mode("kubernetes-session", {}, "yarn")


def test_a_target_is_shown_in_the_words_of_set() -> None:
    assert Target().info == {"execution.mode": "embedded"}
    assert read_target("kubernetes-application/own-pods/mine").info == {
        "execution.mode": "kubernetes-application",
        "execution.engine": "own-pods",
        "kubernetes.cluster-id": "mine",
    }


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        ({"a": {"master": "sparc://head"}}, "is no Spark master"),
        ({"a": {"master": "local", "application": True}}, "YARN and Kubernetes"),
        ({"a": {"master": "yarn", "max_engines": 2}}, "no effect without application"),
        ({"a": {"master": "spark://h:1", "cluster_id": "x"}}, "sessions on YARN and Kubernetes"),
        ({"a/b": {"master": "yarn"}}, "letters, digits"),
        ({"a": {"master": "yarn"}, "A": {"master": "yarn"}}, "more than case"),
    ],
)
def test_sections_that_make_no_sense_are_rejected(engines: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(engines=engines)


def test_users_engines_and_engines_of_tables_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="several users"):
        Config(engine={"share": "user"}, engines={"a": {"master": "yarn"}})
