"""Column lists: the schema parts that CREATE lists and ALTER changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate_server.core.errors import Code
from tidegate_server.core.model.clauses import Assertion, Expectation, Violation, Watermark
from tidegate_server.core.model.types import spark_type
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.assertions import find_misplaced
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.statements import (
    ColumnChange,
    ColumnItem,
    ColumnName,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
    SchemaChange,
)

_TYPE_ENDS = frozenset(
    {",", ")", "NOT", "NULL", "COMMENT", "METADATA", "PRIMARY", "CONSTRAINT", "UNIQUE"}
    | {"FIRST", "AFTER", "ENFORCED", "AS", ";", ""}
    | {"DEFAULT", "GENERATED", "REFERENCES", "CHECK"}
)
_DEEPEST = 100
"""The most levels of a nested type: it is parsed recursively."""
_EXPRESSION_ENDS = (",", ")", ";")
_CONSTRAINTS = frozenset({"PRIMARY", "UNIQUE", "EXPECT", "ASSERT", "CHECK", "FOREIGN"})


@dataclass(slots=True, kw_only=True)
class ColumnList:
    """The column list in the brackets after a table's name, gathered item by item."""

    columns: list[ColumnItem] = field(default_factory=list)
    primary_key: PrimaryKeyClause | None = None
    watermark: Watermark | None = None
    expectations: dict[str, Expectation] = field(default_factory=dict)
    assertions: dict[str, Assertion] = field(default_factory=dict)

    @property
    def only_names(self) -> bool | None:
        """Whether there are only names so far; None while the list is empty."""
        others = (self.primary_key, self.watermark, self.expectations, self.assertions)
        if any(others):
            return False
        return isinstance(self.columns[0], ColumnName) if self.columns else None


def column_list(at: Cursor) -> ColumnList:
    """Read ``( item, ... )``: identifiers only, or any mix of the other kinds."""
    found = ColumnList()
    at.expect("(")
    _item(at, found)
    while at.accept(","):
        _item(at, found)
    at.expect(")")
    return found


def schema_changes(at: Cursor) -> tuple[SchemaChange, ...]:
    """Read what ADD or MODIFY lists: one change, or several in brackets."""
    if at.sees("COLUMNS", "("):
        at.advance()
    if not at.accept("("):
        return (_change(at),)
    changes = [_change(at)]
    watermarks = isinstance(changes[0], Watermark)
    while at.accept(","):
        changes.append(_change(at))
        if isinstance(changes[-1], Watermark):
            if watermarks:
                raise at.failure(Code.MT_WATERMARK_MULTIPLE)
            watermarks = True
    at.expect(")")
    return tuple(changes)


def _item(at: Cursor, found: ColumnList) -> None:
    offset = at.offset
    if _sees_constraint(at):
        _refuse_beside_names(at, found)
        if at.sees("CONSTRAINT") and at.spelling(2) == "EXPECT":
            expectation = _expectation(at, found)
            found.expectations[expectation.name] = expectation
        elif at.sees("CONSTRAINT") and at.spelling(2) == "ASSERT":
            assertion = _assertion(at, found)
            found.assertions[assertion.name] = assertion
        else:
            _set_key(at, found, _table_constraint(at), offset)
    elif at.sees("WATERMARK", "FOR"):
        _refuse_beside_names(at, found)
        if found.watermark is not None:
            raise at.failure(Code.MT_WATERMARK_MULTIPLE)
        found.watermark = _watermark(at)
    else:
        _column_item(at, found)


def _column_item(at: Cursor, found: ColumnList) -> None:
    only_names = found.only_names
    name = at.name("a column name")
    bare = at.sees(",") or at.sees(")")
    if only_names is True and not bare:
        raise at.unexpected_token(
            ",", ")", hint="A column list has either names alone or complete definitions."
        )
    if bare and only_names is not False:
        found.columns.append(ColumnName(name=name))
        return
    offset = at.offset
    column, key = _definition(at, name)
    found.columns.append(column)
    if key is not None:
        _set_key(at, found, key, offset)


def _refuse_beside_names(at: Cursor, found: ColumnList) -> None:
    if found.only_names:
        raise at.unexpected_token("a column name")


def _set_key(at: Cursor, found: ColumnList, key: PrimaryKeyClause, offset: int) -> None:
    if found.primary_key is not None:
        what, wanted = "a second primary key", "one at most"
        raise at.failure(Code.PARSE_SYNTAX, offset=offset, found=what, expected=wanted, hint="")
    found.primary_key = key


def _definition(at: Cursor, name: str) -> tuple[ColumnItem, PrimaryKeyClause | None]:
    if at.accept("AS"):
        expression = _expression(at)
        return ComputedColumn(name=name, expression=expression, comment=_comment(at)), None
    data_type = spark_type(_data_type(at))
    nullable = _nullability(at)
    if at.accept("METADATA"):
        return _metadata(at, name, data_type, nullable), None
    key = _column_constraint(at, name)
    nullable = nullable and _nullability(at)
    column = PhysicalColumn(name=name, type=data_type, nullable=nullable, comment=_comment(at))
    return column, key


def _data_type(at: Cursor) -> str:
    if not at.sees_name() or at.spelling() in _TYPE_ENDS:
        raise at.unexpected_token("a data type")
    start, depth = at.offset, 0
    while not at.ended and (depth > 0 or at.spelling() not in _TYPE_ENDS):
        spelling = at.spelling()
        depth += spelling.count("(") + (0 if spelling in ("->", "=>") else spelling.count("<"))
        depth -= spelling.count(")") + (0 if spelling in ("->", "=>") else spelling.count(">"))
        if depth < 0:
            raise at.unexpected_token("a data type")
        if depth > _DEEPEST:
            raise at.unexpected_token(f"a data type of at most {_DEEPEST} levels")
        at.advance()
    if depth:
        raise at.unexpected_token("the end of the data type")
    return at.text[start : at.passed]


def _nullability(at: Cursor) -> bool:
    if at.accept("NOT", "NULL"):
        return False
    at.accept("NULL")
    return True


def _comment(at: Cursor) -> str | None:
    return at.string("a comment in quotes") if at.accept("COMMENT") else None


def _metadata(at: Cursor, name: str, data_type: str, nullable: bool) -> MetadataColumn:
    key = at.string("a metadata key in quotes") if at.accept("FROM") else None
    virtual = at.accept("VIRTUAL")
    return MetadataColumn(
        name=name,
        type=data_type,
        nullable=nullable,
        key=key,
        virtual=virtual,
        comment=_comment(at),
    )


def _expression(at: Cursor) -> str:
    """Return an expression's text: to the next comma or bracket, COMMENT 'x', FIRST or AFTER."""
    start, depth = at.offset, 0
    while not at.ended and not (depth == 0 and _ends_expression(at)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(at.spelling(), 0)
        at.advance()
    if at.passed <= start:
        raise at.unexpected_token("an expression")
    return at.text[start : at.passed]


def _ends_expression(at: Cursor) -> bool:
    spelling = at.spelling()
    if spelling in _EXPRESSION_ENDS:
        return True
    if spelling == "COMMENT":
        return at.sees_string(1)
    if spelling == "FIRST":
        return _closes(at, 1)
    return spelling == "AFTER" and at.sees_name(1) and _closes(at, 2)


def _closes(at: Cursor, ahead: int) -> bool:
    return at.token(ahead) is None or at.spelling(ahead) in _EXPRESSION_ENDS


def _watermark(at: Cursor) -> Watermark:
    at.expect("WATERMARK", "FOR")
    column = at.name("a column name")
    at.expect("AS")
    return Watermark(column=column, expression=_expression(at))


def _sees_constraint(at: Cursor) -> bool:
    return (
        at.sees("PRIMARY", "KEY")
        or at.sees("UNIQUE", "(")
        or at.sees("CHECK", "(")
        or at.sees("FOREIGN", "KEY")
        or (at.sees("CONSTRAINT") and at.sees_name(1) and at.spelling(2) in _CONSTRAINTS)
    )


def _constraint_name(at: Cursor) -> str | None:
    return at.name("a constraint name") if at.accept("CONSTRAINT") else None


def _table_constraint(at: Cursor) -> PrimaryKeyClause:
    name = _constraint_name(at)
    if at.sees("UNIQUE"):
        raise at.failure(Code.MT_UNIQUE_UNSUPPORTED)
    if at.sees("CHECK"):
        hint = "Write CONSTRAINT name EXPECT (condition) instead of CHECK."
        raise at.unexpected_token("PRIMARY KEY", "EXPECT", hint=hint)
    if at.spelling() in ("EXPECT", "ASSERT"):
        hint = "Expectations and assertions are declared in CREATE OR ALTER MATERIALIZED TABLE."
        raise at.unexpected_token("PRIMARY KEY", hint=hint)
    at.expect("PRIMARY", "KEY")
    columns = clauses.names(at)
    _not_enforced(at, name or f"PK_{'_'.join(columns)}")
    return PrimaryKeyClause(columns=columns, name=name)


def _expectation(at: Cursor, found: ColumnList) -> Expectation:
    name = _own_name(at, found)
    at.expect("EXPECT", "(")
    condition = _condition(at)
    violation = _violation(at, "WARN", "DROP ROW", "QUARANTINE", "FAIL")
    return Expectation(name=name, condition=condition, violation=violation)


def _assertion(at: Cursor, found: ColumnList) -> Assertion:
    name = _own_name(at, found)
    at.expect("ASSERT", "(")
    begins = at.offset
    condition = _condition(at)
    wrong = find_misplaced(condition)
    if wrong is not None:
        raise at.failure(
            Code.PARSE_SYNTAX,
            offset=begins + wrong.offset,
            found=wrong.found,
            expected=wrong.expected,
            hint="",
        )
    violation = _violation(at, "WARN", "HOLD", "FAIL")
    return Assertion(name=name, condition=condition, violation=violation)


def _own_name(at: Cursor, found: ColumnList) -> str:
    """Read the name of a constraint that has its own count of violations."""
    at.expect("CONSTRAINT")
    if at.word() in {**found.expectations, **found.assertions}:
        raise at.unexpected_token("a name that no other expectation or assertion has")
    return at.name("a constraint name")


def _condition(at: Cursor) -> str:
    condition = at.slice_until(";")
    if not condition:
        raise at.unexpected_token("a condition")
    at.expect(")")
    return condition


def _violation(at: Cursor, *actions: str) -> Violation:
    if not at.accept("ON", "VIOLATION"):
        return Violation.WARN
    word = at.accept_any(*actions)
    if word is None:
        raise at.unexpected_token()
    if word == "FAIL":
        at.accept("UPDATE")
    return Violation(word)


def _column_constraint(at: Cursor, column: str) -> PrimaryKeyClause | None:
    if not (at.sees("CONSTRAINT") or at.sees("PRIMARY") or at.sees("UNIQUE")):
        return None
    name = _constraint_name(at)
    if at.sees("UNIQUE"):
        raise at.failure(Code.MT_UNIQUE_UNSUPPORTED)
    at.expect("PRIMARY", "KEY")
    _not_enforced(at, name or f"PK_{column}")
    return PrimaryKeyClause(columns=(column,), name=name)


def _not_enforced(at: Cursor, key: str) -> None:
    if not at.accept("NOT", "ENFORCED"):
        raise at.failure(Code.MT_PK_ENFORCED, key=key)


def _change(at: Cursor) -> SchemaChange:
    if _sees_constraint(at):
        return _table_constraint(at)
    if at.sees("WATERMARK", "FOR"):
        return _watermark(at)
    if at.sees("DISTRIBUTION", "BY") or at.sees("DISTRIBUTION", "INTO"):
        at.advance()
        return clauses.distribution(at)
    at.accept("COLUMN")
    column, key = _definition(at, at.name("a column name"))
    if key is not None:
        raise at.unexpected_token("PRIMARY KEY (...) as a separate change")
    return _with_position(at, column)


def _with_position(at: Cursor, column: ColumnItem) -> ColumnChange:
    if at.accept("FIRST"):
        return ColumnChange(column=column, first=True)
    after = at.name("a column name") if at.accept("AFTER") else None
    return ColumnChange(column=column, after=after)
