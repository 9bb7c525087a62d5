"""What would make a server's tables equal to those of a directory, as a value and as text."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum

from tidegate.cli.projects.directory import Definition, FullName


class Action(Enum):
    """What happens to a table; the value is the word that plans show."""

    NONE = "unchanged"
    CREATE = "created"
    ALTER = "altered"
    LATER = "decided after those that it reads"
    REJECT = "rejected"
    DROP = "dropped"
    LEAVE = "left, although the directory does not define it any more"


_STATISTICS = re.compile(
    r"Statistics\(sizeInBytes=(?P<size>[\d.]+) (?P<unit>[KMGTPE]?i?B)"
    r"(?:, rowCount=(?P<rows>[\d.E+]+))?"
)
_MARKS = {
    Action.CREATE: "+",
    Action.ALTER: "~",
    Action.LATER: "?",
    Action.REJECT: "!",
    Action.DROP: "-",
    Action.LEAVE: " ",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a definition, as EXPLAIN CREATE OR ALTER lists it."""

    object: str
    before: str | None
    after: str | None
    effect: str
    reason: str
    predicted_seconds: float | None = None
    """How long the refresh that follows is expected to take."""
    affected_keys: int | None = None
    """How many keys it is expected to compute again, if not all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One table of a plan."""

    name: FullName
    action: Action
    definition: Definition | None = None
    """None for a table that the directory no longer defines."""
    changes: tuple[Change, ...] = ()
    estimate: str = ""
    """What Spark expects the query of a new table to return."""
    problem: str = ""
    """Why the definition is rejected."""
    readers: tuple[str, ...] = ()
    """Tables outside the directory that read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps in the order in which they are done, those without changes included."""

    project: str
    steps: tuple[Step, ...]

    @property
    def changing(self) -> tuple[Step, ...]:
        """The steps that change something or say why they cannot."""
        return tuple(step for step in self.steps if step.action is not Action.NONE)

    @property
    def rejected(self) -> bool:
        """Whether a definition is rejected, so that nothing can be applied."""
        return any(step.action is Action.REJECT for step in self.steps)

    @property
    def empty(self) -> bool:
        """Whether applying it would do nothing."""
        return not [step for step in self.changing if step.action is not Action.LEAVE]

    @property
    def fingerprint(self) -> str:
        """A digest that differs if the definitions, or the server's tables, differ.

        What the server expects of refreshes is left out, since it differs each time.
        """
        steps = tuple(map(_without_predictions, self.steps))
        text = json.dumps(as_json(replace(self, steps=steps)), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _without_predictions(step: Step) -> Step:
    changes = (replace(each, predicted_seconds=None, affected_keys=None) for each in step.changes)
    return replace(step, changes=tuple(changes), estimate="")


def as_json(plan: Plan) -> dict[str, object]:
    """Return a plan as JSON has it; only what changes, and the text of the statements."""
    return {
        "project": plan.project,
        "tables": len(plan.steps),
        "steps": [
            {
                "table": ".".join(step.name),
                "action": step.action.name,
                "place": step.definition.place if step.definition else None,
                "statement": step.definition.part.sql if step.definition else None,
                "changes": list(map(asdict, step.changes)),
                "estimate": step.estimate or None,
                "problem": step.problem or None,
                "readers": list(step.readers),
            }
            for step in plan.changing
        ],
    }


def as_text(plan: Plan) -> str:
    """Return a plan for a terminal."""
    lines: list[str] = []
    for step in plan.changing:
        place = f"  ({step.definition.place})" if step.definition else ""
        lines.append(f"{_MARKS[step.action]} {'.'.join(step.name)}: {step.action.value}{place}")
        lines += [f"    {line}" for line in _details(step)]
    return "\n".join([*lines, summary(plan)])


def as_markdown(plan: Plan) -> str:
    """Return a plan for the description of a pull request."""
    lines = [f"### Materialized tables of {plan.project}", "", summary(plan)]
    for step in plan.changing:
        lines += ["", f"- **`{'.'.join(step.name)}`** {step.action.value}"]
        lines += [f"  - {_escaped(line)}" for line in _details(step)]
    return "\n".join(lines)


def summary(plan: Plan) -> str:
    """Return how many tables there are of each action."""
    if not plan.changing:
        return f"No changes: {_count(len(plan.steps))} as defined."
    counts = Counter(step.action for step in plan.steps)
    parts = [f"{counts[action]} {action.value}" for action in Action if counts[action]]
    return f"{_count(len(plan.steps))}: {', '.join(parts)}."


def _details(step: Step) -> Iterator[str]:
    if step.problem:
        yield from step.problem.splitlines()
    if step.estimate:
        yield f"the first refresh computes all rows: {step.estimate}"
    for change in step.changes:
        yield _describe(change)
    if step.readers:
        yield f"read by {', '.join(step.readers)}"


def _describe(change: Change) -> str:
    because = f": {change.reason}" if change.reason else ""
    match change:
        case Change(object="REFRESH"):
            return f"the next refresh is {change.after}{_prediction(change)}{because}"
        case Change(object="QUERY"):
            what = "QUERY changed"
        case Change(before=None, after=None):
            return f"{change.object} {change.effect}{because}"
        case Change(before=None):
            what = f"{change.object} added: {change.after}"
        case Change(after=None):
            what = f"{change.object} removed: {change.before}"
        case _:
            what = f"{change.object} changed from {change.before} to {change.after}"
    return f"{what} [{change.effect}]{because}"


def _prediction(change: Change) -> str:
    """Return what the server expects of a refresh, in brackets; empty if it expects nothing."""
    parts = []
    if change.predicted_seconds is not None:
        parts.append(f"about {change.predicted_seconds:.2g} s")
    if change.affected_keys is not None:
        parts.append(f"{change.affected_keys:,} keys")
    return f" ({', '.join(parts)})" if parts else ""


def estimate_of(plan: str) -> str:
    """Return the size of a query's result in the text of EXPLAIN COST; empty if Spark has none.

    Spark estimates each operator; the first one is the query itself. For what it knows nothing of,
    it estimates exbibytes.
    """
    found = _STATISTICS.search(plan)
    if found is None or found["unit"] in ("PiB", "EiB"):
        return ""
    rows = f", {float(found['rows']):,.0f} rows" if found["rows"] else ""
    return f"about {found['size']} {found['unit']}{rows}"


def _count(number: int) -> str:
    return "1 table" if number == 1 else f"{number:,} tables"


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\`*_<>[]|" else letter for letter in text)


def changes_of(names: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[Change, ...] | None:
    """Return the changes in the answer of EXPLAIN CREATE OR ALTER; None if the table is new."""
    if "object" not in names:
        return None

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    def change(row: Sequence[object]) -> Change:
        values = dict(zip(names, row, strict=True))
        seconds, keys = text(values.get("predicted_seconds")), text(values.get("affected_keys"))
        return Change(
            object=str(values["object"]),
            before=text(values["before"]),
            after=text(values["after"]),
            effect=str(values["effect"]),
            reason=text(values["reason"]) or "",
            predicted_seconds=None if seconds is None else float(seconds),
            affected_keys=None if keys is None else int(keys),
        )

    return tuple(map(change, rows))
