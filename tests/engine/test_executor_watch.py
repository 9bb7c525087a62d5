"""Work that waits for a first executor is noticed, and ended after a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate_server.engine.session.executors import NOTICE_SECONDS, ExecutorWatch


@dataclass
class Cluster:
    """A cluster that gives no executor to some operations, and the time."""

    starving: set[str] = field(default_factory=set)
    now: float = 0.0
    reasons: list[str] = field(default_factory=list)
    """What the cluster answers when it is asked why, one after the other."""
    later: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = ExecutorWatch(
            self.starving.__contains__,
            master="spark://head:7077",
            engine="the engine nightly",
            timeout=60,
            explain=lambda: self.reasons.pop(0),
            in_background=self.later.append,
            clock=lambda: self.now,
        )


def test_work_that_starts_soon_is_not_mentioned() -> None:
    cluster = Cluster({"a"})
    assert cluster.watch.check("a") is None
    cluster.now = NOTICE_SECONDS - 1
    assert cluster.watch.check("a") is None
    assert (cluster.watch.message("a"), cluster.watch.seconds) == ("", 0)


def test_work_that_waits_says_for_whom() -> None:
    cluster = Cluster({"a"})
    cluster.watch.check("a")
    cluster.watch.check("b")
    cluster.now = NOTICE_SECONDS + 1
    message = cluster.watch.message("a")
    assert "spark://head:7077 has given the engine nightly none" in message
    assert (cluster.watch.message("b"), cluster.watch.seconds) == ("", NOTICE_SECONDS + 1)


def test_work_is_ended_after_the_time() -> None:
    cluster = Cluster({"a"})
    cluster.watch.check("a")
    cluster.now = 60
    failure = cluster.watch.check("a")
    assert failure is not None
    assert failure.code == "CLUSTER_NO_EXECUTORS"
    assert failure.message.endswith("has given the engine nightly no executor for 60 s.")


def test_an_executor_ends_the_wait() -> None:
    cluster = Cluster({"a"})
    cluster.watch.check("a")
    cluster.now = 59
    cluster.starving.clear()
    assert cluster.watch.check("a") is None
    cluster.starving.add("a")
    cluster.now = 100
    assert cluster.watch.check("a") is None
    assert cluster.watch.message("a") == ""
    cluster.watch.forget("a")
    assert cluster.watch.seconds == 0


def test_the_cluster_is_asked_why_now_and_then() -> None:
    cluster = Cluster({"a"}, reasons=["The image is missing", "The nodes are full"])
    for cluster.now in (0, NOTICE_SECONDS, NOTICE_SECONDS + 1):
        assert cluster.watch.check("a") is None
    assert "Other applications may have all" in cluster.watch.message("a")
    [ask] = cluster.later  # not again before it has answered
    ask()
    assert cluster.watch.message("a").endswith("the engine nightly none. The image is missing")
    assert cluster.watch.reason == "The image is missing"
    cluster.watch.check("a")
    assert len(cluster.later) == 1
    cluster.now = 60
    failure = cluster.watch.check("a")
    assert failure is not None
    assert failure.message.endswith("no executor for 60 s. The image is missing.")
    [_, ask] = cluster.later
    ask()
    assert cluster.watch.reason == "The nodes are full"
