"""Where the refreshes of a table run: which engine, in which mode of execution."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tidegate_server.core.config_sections import EngineTargetSection, mode_of
from tidegate_server.core.errors import Code, ServerError, error

MODE_KEY = "execution.mode"
ENGINE_KEY = "execution.engine"
KUBERNETES_KEY = "kubernetes.cluster-id"
YARN_KEY = "yarn.application.id"
LOAD_ENGINE_KEY = "execution.initial-engine"
TARGET_KEYS = (MODE_KEY, ENGINE_KEY, KUBERNETES_KEY, YARN_KEY)
EMBEDDED = "embedded"
MODES = (
    EMBEDDED,
    "remote",
    "yarn-session",
    "yarn-application",
    "kubernetes-session",
    "kubernetes-application",
)
"""Flink's words, and ``embedded`` for the gateway's own engine."""
_CLUSTER_NAME = re.compile(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?")
"""Names of resources in Kubernetes that leave room for what Spark appends."""

Setting = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Target:
    """An engine, as a table remembers it."""

    mode: str = EMBEDDED
    engine: str = ""
    """The name of its section in the configuration; empty for the gateway's own engine."""
    cluster: str = ""
    """The id of the application, if the table has one of its own."""

    def __str__(self) -> str:
        """Return the stored form: ``remote``, ``remote/big``, ``yarn-application/spark/id``."""
        return "/".join(filter(None, (self.mode, self.engine, self.cluster)))

    @property
    def key(self) -> str:
        """The engine among those of all sections."""
        return "/".join(filter(None, (self.engine, self.cluster)))

    @property
    def info(self) -> dict[str, str]:
        """The target in the words of SET."""
        found = {MODE_KEY: self.mode}
        if self.engine:
            found[ENGINE_KEY] = self.engine
        if self.cluster:
            found[_cluster_key(self.mode)] = self.cluster
        return found


def read_target(text: str) -> Target:
    """Return the target of a stored form."""
    return Target(*text.split("/", 2))


def choose_target(
    setting: Setting,
    engines: Mapping[str, EngineTargetSection],
    master: str,
    new_id: Callable[[], str],
) -> Target:
    """Return the target of a new table.

    :param setting: returns the value of an option in the session.
    :param engines: the sections of the configuration by name.
    :param master: that of the gateway's own engine.
    :raises ServerError: MT_EXECUTION_MODE or MT_OPTION_VALUE.
    """
    mode = (setting(MODE_KEY) or "").strip().lower()
    if mode and mode not in MODES:
        raise _unknown_mode(mode)
    name = (setting(ENGINE_KEY) or "").strip()
    if name:
        name = known_engine(name, engines)
        if mode and engines[name].mode != mode:
            raise error(
                Code.MT_OPTION_VALUE,
                key=ENGINE_KEY,
                value=repr(name),
                reason=f"its mode is {engines[name].mode}, and {MODE_KEY} is {mode}; "
                f"RESET '{MODE_KEY}'",
            )
    elif mode in ("", EMBEDDED):
        return Target()
    else:
        name = _engine_of_mode(mode, setting, engines, master)
    if not name:
        return Target(mode)
    section = engines[name]
    cluster = _application(section.mode, setting, new_id) if section.application else ""
    return Target(section.mode, name, cluster)


def change_target(
    current: Target,
    options: Mapping[str, str],
    engines: Mapping[str, EngineTargetSection],
    master: str,
    new_id: Callable[[], str],
) -> Target:
    """Return the target of a table after ALTER ... SET with some of :data:`TARGET_KEYS`.

    The session's settings do not count. The rest is that of :func:`choose_target`.

    :raises ServerError: MT_EXECUTION_MODE, or MT_OPTION_VALUE, also for a cluster that the engine
        does not have.
    """
    chooses = MODE_KEY in options or ENGINE_KEY in options
    given = options if chooses else {**current.info, **options}
    found = choose_target(given.get, engines, master, new_id)
    for key in options.keys() & {KUBERNETES_KEY, YARN_KEY}:
        if not _has_cluster(found, key, options[key].strip(), engines):
            reason = f"the engine {found} has no such cluster"
            raise error(Code.MT_OPTION_VALUE, key=key, value=repr(options[key]), reason=reason)
    named = KUBERNETES_KEY in options or YARN_KEY in options
    if not named and (found.mode, found.engine) == (current.mode, current.engine):
        return current  # an application keeps its id
    return found


def reset_target(current: Target, keys: Collection[str]) -> Target:
    """Return the target of a table after ALTER ... RESET.

    :raises ServerError: MT_OPTION_VALUE for the id of an application alone.
    """
    if MODE_KEY in keys or ENGINE_KEY in keys:
        return Target()
    for key in current.info.keys() & set(keys):
        reason = f"RESET ('{ENGINE_KEY}') moves the table to the gateway's own engine"
        raise error(Code.MT_OPTION_VALUE, key=key, value=repr(current.cluster), reason=reason)
    return current


def _has_cluster(
    target: Target, key: str, value: str, engines: Mapping[str, EngineTargetSection]
) -> bool:
    if not target.engine or key != _cluster_key(target.mode):
        return False
    if target.mode.endswith("-session"):
        return value in (target.engine, engines[target.engine].cluster_id)
    return value == target.cluster


def load_target(name: str, engines: Mapping[str, EngineTargetSection], table_id: str) -> Target:
    """Return the target of a table's first load, in an engine that :data:`LOAD_ENGINE_KEY` names.

    An engine that is no longer configured remains the target: it is not replaced by another.
    """
    found = _folded(engines).get(name.strip().lower())
    if found is None:
        return Target(engine=name.strip())
    section = engines[found]
    cluster = f"tidegate-{table_id[:8]}-load" if section.application else ""
    return Target(section.mode, found, cluster)


def _folded(engines: Mapping[str, EngineTargetSection]) -> dict[str, str]:
    """Return the names of sections by those in lower case."""
    return {name.lower(): name for name in engines}


def known_engine(
    name: str, engines: Mapping[str, EngineTargetSection], key: str = ENGINE_KEY
) -> str:
    """Return the name of a section as the configuration spells it.

    :param key: the option that names it.

    :raises ServerError: MT_OPTION_VALUE if there is none.
    """
    folded = _folded(engines)
    if (found := folded.get(name.lower())) is not None:
        return found
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    if near:
        reason = f"did you mean {folded[near[0]]}?"
    elif engines:
        reason = f"the configuration has the engines {', '.join(sorted(engines))}"
    else:
        reason = "the configuration has no sections [engines.NAME]"
    raise error(Code.MT_OPTION_VALUE, key=key, value=repr(name), reason=reason)


def check_mode(mode: str, engines: Mapping[str, EngineTargetSection], master: str) -> bool:
    """Reject a mode for which there is no engine; return whether it is the gateway's own.

    :raises ServerError: MT_EXECUTION_MODE.
    """
    word = mode.strip().lower()
    if word not in MODES:
        raise _unknown_mode(mode)
    if word == EMBEDDED:
        return True
    if any(section.mode == word for section in engines.values()):
        return False
    _require_own(word, master)
    return True


def _engine_of_mode(
    mode: str, setting: Setting, engines: Mapping[str, EngineTargetSection], master: str
) -> str:
    """Return the only section for a mode, or the one of the cluster that is set.

    Empty means the gateway's own engine.
    """
    found = {name: section for name, section in engines.items() if section.mode == mode}
    if not found:
        _require_own(mode, master)
        return ""
    if mode.endswith("-session") and (cluster := setting(_cluster_key(mode))):
        for name, section in found.items():
            if cluster.strip() in (name, section.cluster_id):
                return name
        known = sorted(section.cluster_id or name for name, section in found.items())
        raise error(
            Code.MT_OPTION_VALUE,
            key=_cluster_key(mode),
            value=repr(cluster),
            reason=f"the configuration has {', '.join(known)}",
        )
    if len(found) == 1:
        return next(iter(found))
    raise _mode_error(
        mode, f"Several engines have it: SET '{ENGINE_KEY}' to one of {', '.join(sorted(found))}."
    )


def _require_own(mode: str, master: str) -> None:
    """Reject a mode that is not that of the gateway's own engine.

    ``remote`` always is: it is Flink's word for a cluster that runs already.
    """
    if mode == "remote" or mode in (mode_of(master), mode_of(master, application=True)):
        return
    wanted = "yarn" if mode.startswith("yarn") else "k8s://https://host:port"
    application = ", and application = true" if mode.endswith("-application") else ""
    raise _mode_error(
        mode,
        f"The gateway's own engine runs on {master}. Add a section [engines.NAME] with "
        f"master = '{wanted}'{application} to the configuration.",
    )


def _application(mode: str, setting: Setting, new_id: Callable[[], str]) -> str:
    """Return the id of a new application: the one that is set, or a generated one."""
    given = (setting(KUBERNETES_KEY) or "").strip() if mode.startswith("kubernetes") else ""
    if not given:
        return f"tidegate-{new_id()[:8]}"
    check_cluster_name(KUBERNETES_KEY, given)
    return given


def check_cluster_name(key: str, value: str) -> None:
    """Reject what cannot be the name of a cluster.

    :raises ServerError: MT_OPTION_VALUE.
    """
    if key == KUBERNETES_KEY and not _CLUSTER_NAME.fullmatch(value.strip()):
        raise error(
            Code.MT_OPTION_VALUE,
            key=key,
            value=repr(value),
            reason="a name has up to 45 lower-case letters, digits and hyphens, and begins with a "
            "letter",
        )


def _cluster_key(mode: str) -> str:
    return KUBERNETES_KEY if mode.startswith("kubernetes") else YARN_KEY


def _unknown_mode(mode: str) -> ServerError:
    near = difflib.get_close_matches(mode.strip().lower(), MODES, n=1)
    meant = f"Did you mean {near[0]}? " if near else ""
    return _mode_error(mode, f"{meant}The modes are {', '.join(MODES)}.")


def _mode_error(mode: str, hint: str) -> ServerError:
    return error(Code.MT_EXECUTION_MODE, mode=mode, hint=hint)
