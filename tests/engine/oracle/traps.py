"""Changes that incremental maintenance is known to get wrong, each as a small stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.engine.oracle.streams import Step, Stream
from tests.engine.oracle.tables import TABLES, Layout

_PLAIN = Layout(feed=True, partitioned=False, vectors=False, clustered=False)
_UNRECORDED = Layout(feed=False, partitioned=False, vectors=False, clustered=False)


def _fact(*rows: str) -> str:
    """Insert rows (k, g, n, m, d)."""
    return f"INSERT INTO {{fact}} VALUES {', '.join(rows)}"


def _other(*rows: str) -> str:
    """Insert rows (g, k, x, t)."""
    return f"INSERT INTO {{other}} VALUES {', '.join(rows)}"


def _small(*rows: str) -> str:
    """Insert rows (n, k, d)."""
    return f"INSERT INTO {{small}} VALUES {', '.join(rows)}"


def _rare(*rows: str) -> str:
    """Insert rows (i, c, b)."""
    return f"INSERT INTO {{rare}} (i, c, b) VALUES {', '.join(rows)}"


def _deep(*rows: str) -> str:
    """Insert rows (n, s)."""
    return f"INSERT INTO {{deep}} (n, s) VALUES {', '.join(rows)}"


def _trap(queries: tuple[str, ...], start: Step, *steps: Step, layout: Layout = _PLAIN) -> Stream:
    text = " ".join((*queries, *start, *(s for step in steps for s in step)))
    used = {table: layout for table in TABLES if f"{{{table}}}" in text}
    return Stream(layouts=used, start=start, queries=queries, steps=steps)


_ROWS = _fact(
    "('a', 0, 1, 1.10, 0.5)",
    "('a', 1, 2, NULL, -0.0D)",
    "('b', 1, 3, 9999999999.99, double('NaN'))",
    "(NULL, NULL, 4, 1, 1)",
    "(NULL, 0, NULL, NULL, NULL)",
)
_PARTNERS = _other(
    "(0, 'a', 10, DATE '2026-01-01')", "(1, 'b', 20, NULL)", "(NULL, NULL, 30, NULL)"
)
_LEAST, _MOST = "bigint('-9223372036854775808')", "9223372036854775807"
_COUNTED = (
    "SELECT k, count(*) AS c, count(n) AS cn, sum(n) AS s, max(n) AS hi FROM {fact} GROUP BY k"
)
_JOINED = "SELECT f.k, f.n, o.x FROM {fact} f JOIN {other} o ON f.k = o.k"

TRAPS: Mapping[str, Stream] = {
    "a group's key becomes null and back": _trap(
        (_COUNTED, "SELECT DISTINCT k FROM {fact}"),
        (_ROWS,),
        ("UPDATE {fact} SET k = NULL WHERE k = 'b'",),
        ("UPDATE {fact} SET k = 'b' WHERE k IS NULL AND n = 3",),
    ),
    "the last row of a group goes": _trap(
        (_COUNTED, "SELECT k, g, count(*) AS c FROM {fact} GROUP BY ROLLUP (k, g)"),
        (_ROWS,),
        ("DELETE FROM {fact} WHERE k = 'b'",),
        ("DELETE FROM {fact} WHERE k IS NULL",),
    ),
    "key and value change in one update": _trap(
        (_COUNTED, _JOINED),
        (_ROWS, _PARTNERS),
        ("UPDATE {fact} SET k = 'b', n = 100 WHERE n = 1",),
        ("UPDATE {fact} SET k = CASE k WHEN 'a' THEN 'b' WHEN 'b' THEN 'a' END, n = -n",),
    ),
    "null as a join key": _trap(
        (
            "SELECT f.k AS fk, f.n, o.k AS ok, o.x FROM {fact} f FULL JOIN {other} o ON f.k = o.k",
            "SELECT f.k, f.n, o.k AS ok, o.x FROM {fact} f LEFT JOIN {other} o ON f.k <=> o.k",
        ),
        (_ROWS, _PARTNERS),
        ("UPDATE {fact} SET k = NULL WHERE n = 1", "UPDATE {other} SET k = 'a' WHERE k IS NULL"),
        ("UPDATE {fact} SET k = 'a' WHERE k IS NULL", "UPDATE {other} SET k = NULL WHERE k = 'b'"),
    ),
    "having begins and ceases to hold": _trap(
        ("SELECT k, sum(n) AS s FROM {fact} GROUP BY k HAVING count(*) > 1 AND sum(n) < 10",),
        (_ROWS,),
        (_fact("('b', 0, 1, 0, 0)"), "UPDATE {fact} SET n = 50 WHERE k = 'a' AND n = 1"),
        ("DELETE FROM {fact} WHERE k = 'b' AND n = 1", "UPDATE {fact} SET n = 0 WHERE n = 50"),
    ),
    "rows are deleted on several sides of a join": _trap(
        (
            (
                "SELECT f.k, f.n, o.x, s.d FROM {fact} f JOIN {other} o ON f.k = o.k"
                " JOIN {small} s ON s.k = o.k"
            ),
        ),
        (_ROWS, _PARTNERS, _small("(1, 'a', 0.5)", "(2, 'a', 1.5)", "(3, 'b', 0.5)")),
        (
            "DELETE FROM {fact} WHERE n = 1",
            "DELETE FROM {other} WHERE k = 'a'",
            "DELETE FROM {small} WHERE n IN (1, 3)",
        ),
    ),
    "both sides of a join change at once": _trap(
        (
            _JOINED,
            "SELECT f.k, count(*) AS c FROM {fact} f JOIN {other} o ON f.g = o.g GROUP BY f.k",
        ),
        (_ROWS, _PARTNERS),
        (
            _fact("('new', 7, 7, 7, 7)", "('a', 0, 1, 1.10, 0.5)"),
            _other("(7, 'new', 70, NULL)", "(0, 'a', 10, NULL)"),
            "DELETE FROM {fact} WHERE n = 2",
            "UPDATE {other} SET g = 0 WHERE k = 'b'",
        ),
    ),
    "a table is joined with itself": _trap(
        (
            "SELECT a.k, a.n, b.n AS n2 FROM {fact} a JOIN {fact} b ON a.k = b.k AND a.n < b.n",
            "SELECT a.n, b.k FROM {fact} a LEFT JOIN {fact} b ON a.g = b.n",
        ),
        (_ROWS,),
        (_fact("('a', 0, 5, 0, 0)", "('c', 5, 0, 0, 0)"), "DELETE FROM {fact} WHERE n = 2"),
        ("UPDATE {fact} SET k = 'a' WHERE k = 'b'",),
    ),
    "rows are deleted and inserted again": _trap(
        (_COUNTED, "SELECT k, n FROM {fact}"),
        (_ROWS, _fact("('a', 0, 1, 1.10, 0.5)")),
        (
            "DELETE FROM {fact} WHERE k = 'a'",
            _fact("('a', 0, 1, 1.10, 0.5)", "('a', 0, 1, 1.10, 0.5)", "('a', 1, 2, NULL, -0.0D)"),
        ),
        ("DELETE FROM {fact}", _ROWS),
    ),
    "values are updated to what they are": _trap(
        (_COUNTED, "SELECT k, n FROM {fact}"), (_ROWS,), ("UPDATE {fact} SET n = n, k = k",)
    ),
    "a table is overwritten": _trap(
        (_COUNTED, _JOINED),
        (_ROWS, _PARTNERS),
        ("INSERT OVERWRITE {fact} SELECT * FROM {fact}",),
        ("INSERT OVERWRITE {fact} SELECT * FROM {fact} WHERE k = 'a'",),
    ),
    "files are compacted between changes": _trap(
        (_COUNTED,),
        (_ROWS,),
        (_fact("('a', 1, 9, 0, 0)"), "OPTIMIZE {fact}", "DELETE FROM {fact} WHERE n = 1"),
        ("OPTIMIZE {fact}",),
    ),
    "a source gets another column": _trap(
        (_COUNTED, "SELECT k, n FROM {fact}"),
        (_ROWS,),
        (
            "ALTER TABLE {fact} ADD COLUMN more STRING",
            "INSERT INTO {fact} VALUES ('c', 1, 1, 1, 1, 'x')",
        ),
        ("UPDATE {fact} SET more = 'y'", "DELETE FROM {fact} WHERE n = 2"),
    ),
    "an average of decimals": _trap(
        ("SELECT k, avg(m) AS a, sum(m) AS s FROM {fact} GROUP BY k",),
        (_ROWS, _fact("('a', 0, 1, 0.01, 0)", "('a', 0, 1, 0.01, 0)", "('a', 0, 1, 0.02, 0)")),
        ("DELETE FROM {fact} WHERE m = 0.02", _fact("('b', 1, 1, 0.01, 0)")),
        ("UPDATE {fact} SET m = -m",),
    ),
    "one of several equal rows goes": _trap(
        ("SELECT k FROM {fact}", "SELECT k, m FROM {fact} UNION ALL SELECT k, m FROM {fact}"),
        (
            _fact(
                "('a', 0, 1, 5, 0)", "('a', 0, 2, 5, 0)", "('a', 0, 3, 5, 0)", "(NULL, 0, 4, 5, 0)"
            ),
        ),
        ("DELETE FROM {fact} WHERE n IN (2, 4)",),
        (_fact("('a', 0, 2, 5, 0)", "('a', 0, 2, 5, 0)"), "DELETE FROM {fact} WHERE n = 1"),
    ),
    "a scalar subquery of the outer row": _trap(
        ("SELECT k, n, (SELECT count(*) FROM {other} o WHERE o.k = f.k) AS c FROM {fact} f",),
        (_ROWS, _PARTNERS),
        ("DELETE FROM {other} WHERE k = 'a'", _other("(5, 'b', 0, NULL)", "(5, NULL, 0, NULL)")),
        (_fact("('b', 1, 1, 1, 1)"),),
    ),
    "nan and zeros of either sign": _trap(
        (
            "SELECT k, d, count(*) AS c FROM {fact} GROUP BY k, d",
            "SELECT f.k, f.d FROM {fact} f JOIN {small} s ON f.d = s.d AND f.k = s.k",
        ),
        (_ROWS, _small("(1, 'a', 0.0D)", "(2, 'b', double('NaN'))")),
        ("UPDATE {fact} SET d = 0.0D WHERE k = 'a'", _fact("('b', 1, 1, 1, double('NaN'))")),
        ("UPDATE {fact} SET d = -0.0D WHERE k = 'b' AND n = 3",),
    ),
    "decimals at their limits": _trap(
        (
            "SELECT k, max(x) AS hi, min(x) AS lo, try_sum(x) AS s FROM {other} GROUP BY k",
            "SELECT x, count(*) AS c FROM {other} GROUP BY x",
        ),
        (_other(f"(0, 'a', {'9' * 38}, NULL)", f"(0, 'a', -{'9' * 38}, NULL)"),),
        (_other(f"(0, 'a', {'9' * 38}, NULL)", f"(1, 'b', {'9' * 38}, NULL)"),),
        (f"DELETE FROM {{other}} WHERE x = -{'9' * 38}",),
    ),
    "the first partner comes, the last one goes": _trap(
        (
            "SELECT k, n FROM {fact} f LEFT ANTI JOIN {other} o ON f.k = o.k",
            "SELECT k, n FROM {fact} f WHERE EXISTS (SELECT 1 FROM {other} o WHERE o.k = f.k)",
            "SELECT f.k, f.n, o.x FROM {fact} f LEFT JOIN {other} o ON f.k = o.k",
        ),
        (_ROWS, _other("(0, 'a', 1, NULL)", "(0, 'a', 1, NULL)", "(0, 'b', 1, NULL)")),
        ("DELETE FROM {other} WHERE k = 'b'", _other("(0, 'c', 1, NULL)")),
        (
            _fact("('c', 0, 1, 0, 0)"),
            "DELETE FROM {other} WHERE k = 'a'",
            _other("(0, 'b', 1, NULL)"),
        ),
    ),
    "a table is empty, filled, empty again": _trap(
        (
            "SELECT f.k, f.n, o.x FROM {fact} f FULL JOIN {other} o ON f.k = o.k",
            "SELECT k FROM {fact} EXCEPT ALL SELECT k FROM {other}",
            "SELECT k, count(*) AS c FROM {other} GROUP BY k",
        ),
        (_ROWS,),
        (_PARTNERS,),
        ("DELETE FROM {other}",),
    ),
    "null comes into a list that must not hold a value": _trap(
        (
            "SELECT k, n FROM {fact} WHERE k NOT IN (SELECT k FROM {other})",
            "SELECT k, n FROM {fact} WHERE k IN (SELECT k FROM {other})",
        ),
        (_ROWS, _other("(0, 'a', 1, NULL)")),
        (_other("(0, NULL, 1, NULL)"),),
        ("DELETE FROM {other} WHERE k IS NULL",),
    ),
    "the first row of a window's partition goes": _trap(
        (
            "SELECT k, n, rank() OVER (PARTITION BY k ORDER BY n) AS r FROM {fact}",
            (
                "SELECT * FROM (SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n DESC)"
                " AS r FROM {fact}) WHERE r = 1"
            ),
        ),
        (_ROWS, _fact("('b', 0, 1, 0, 0)")),
        ("DELETE FROM {fact} WHERE n = 1", "UPDATE {fact} SET k = 'b' WHERE n = 2"),
        ("UPDATE {fact} SET k = NULL WHERE k = 'b' AND n = 3",),
    ),
    "changes that undo each other": _trap(
        (_COUNTED, _JOINED),
        (_ROWS, _PARTNERS),
        (
            "UPDATE {fact} SET n = n + 1 WHERE n IS NOT NULL",
            "UPDATE {fact} SET n = n - 1 WHERE n IS NOT NULL",
            _fact("('x', 0, 0, 0, 0)"),
            "DELETE FROM {fact} WHERE k = 'x'",
        ),
    ),
    "a table on a table whose change cancels out": _trap(
        (_COUNTED, "SELECT c, count(*) AS n FROM {mt0} GROUP BY c", "SELECT k FROM {mt0}"),
        (_ROWS,),
        ("UPDATE {fact} SET k = 'c' WHERE k = 'b'",),
        ("UPDATE {fact} SET n = 0",),
    ),
    "transfers through a diamond keep their sum": _trap(
        (
            "SELECT k, sum(n) AS balance FROM {small} WHERE k < 'm' GROUP BY k",
            "SELECT k, sum(n) AS balance FROM {small} WHERE k >= 'm' GROUP BY k",
            "SELECT * FROM {mt0} UNION ALL SELECT * FROM {mt1}",
            (
                "SELECT a.k AS k1, b.k AS k2, a.balance + b.balance AS total FROM {mt0} a"
                " JOIN {mt1} b ON a.balance = -b.balance"
            ),
        ),
        (_small("(5, 'a', 0)", "(-5, 'z', 0)"),),
        (_small("(-3, 'a', 0)", "(3, 'z', 0)"),),
        (_small("(-2, 'z', 0)", "(2, 'b', 0)"), "DELETE FROM {small} WHERE n IN (-3, 3)"),
    ),
    "a sum whose change does not fit into its type": _trap(
        ("SELECT i, sum(b) AS s, count(*) AS c FROM {rare} GROUP BY i",),
        (_rare("(1, 'a', 5)", f"(1, 'a', {_LEAST})", f"(1, 'a', {_MOST})", "(2, 'b', 1)"),),
        (f"DELETE FROM {{rare}} WHERE b IN ({_LEAST}, {_MOST})",),
        (_rare(f"(1, 'c', {_LEAST})", f"(2, 'c', {_MOST} - 1)"),),
        (f"DELETE FROM {{rare}} WHERE b = {_LEAST}",),
    ),
    "a struct is a key": _trap(
        (
            "SELECT s, count(*) AS c, max(n) AS hi FROM {deep} GROUP BY s",
            "SELECT DISTINCT s.a, s FROM {deep}",
            "SELECT n, s, rank() OVER (PARTITION BY s ORDER BY n) AS r FROM {deep}",
        ),
        (
            _deep(
                "(1, named_struct('a', 1, 'd', 0.0D, 't', 'x'))",
                "(2, named_struct('a', 1, 'd', -0.0D, 't', 'x'))",
                "(3, named_struct('a', NULL, 'd', NULL, 't', NULL))",
                "(4, NULL)",
            ),
        ),
        ("DELETE FROM {deep} WHERE n = 1",),
        ("UPDATE {deep} SET s = NULL WHERE n = 3", _deep("(5, NULL)", "(6, NULL)")),
        ("DELETE FROM {deep} WHERE n = 4",),
    ),
    "what cannot be compared is added and taken away": _trap(
        ("SELECT n, parse_json(to_json(s)) AS j FROM {deep}",),
        (_deep("(1, named_struct('a', 1, 'd', 0.5D, 't', 'x'))", "(2, NULL)"),),
        (_deep("(3, named_struct('a', 2, 'd', 0.5D, 't', 'x'))"),),
        ("DELETE FROM {deep} WHERE n = 1",),
    ),
    "short strings and longer ones come together": _trap(
        (
            "SELECT c FROM {rare} UNION ALL SELECT k FROM {fact}",
            "SELECT c, count(*) AS n FROM {rare} GROUP BY c",
        ),
        (_ROWS, _rare("(1, 'a', 1)"), _fact("('longer than three', 0, 1, 1, 1)")),
        (_fact("('another long one', 0, 1, 1, 1)"), "DELETE FROM {fact} WHERE k = 'a'"),
        (_rare("(1, 'bc', 1)"),),
    ),
    "old files are gone, but for one that came back": _trap(
        (_COUNTED,),
        (_ROWS, _fact("('z', 0, 1, 1, 1)")),
        (
            "DELETE FROM {fact} WHERE k = 'a'",
            "RESTORE TABLE {fact} TO VERSION AS OF 2",
            "DELETE FROM {fact} WHERE k = 'z'",
            "VACUUM {fact} RETAIN 0 HOURS",
        ),
        (_fact("('a', 0, 1, 1, 1)"),),
        layout=_UNRECORDED,
    ),
    "files that were compacted are gone": _trap(
        (_COUNTED, "SELECT f.k, o.x FROM {fact} f LEFT JOIN {other} o ON f.k = o.k"),
        (_ROWS, _PARTNERS, _fact("('z', 0, 1, 1, 1)")),
        ("OPTIMIZE {fact}", "VACUUM {fact} RETAIN 0 HOURS", "DELETE FROM {fact} WHERE k = 'z'"),
        (_fact("('a', 0, 1, 1, 1)"),),
        layout=_UNRECORDED,
    ),
    "old deletion vectors are gone": _trap(
        (_COUNTED,),
        (_ROWS,),
        ("DELETE FROM {fact} WHERE n = 1",),
        ("DELETE FROM {fact} WHERE n = 2", "VACUUM {fact} RETAIN 0 HOURS"),
        (_fact("('a', 0, 1, 1, 1)"),),
        layout=replace(_UNRECORDED, vectors=True),
    ),
    "a value below a negation becomes null": _trap(
        (
            "SELECT k, n FROM {fact} WHERE NOT (k IN (SELECT k FROM {other}) AND n > 1)",
            "SELECT k, n FROM {fact} WHERE (k IN (SELECT k FROM {other})) = false",
            "SELECT k, n FROM {fact} WHERE NOT (NOT (k IN (SELECT k FROM {other}) OR n > 3))",
            "SELECT k, n FROM {fact} WHERE (k IN (SELECT k FROM {other})) <> true",
            "SELECT k, n, k NOT IN (SELECT k FROM {other}) OR n = 1 AS p FROM {fact}",
        ),
        (_ROWS, _other("(0, 'a', 10, NULL)", "(1, 'b', 20, NULL)")),
        (
            "UPDATE {fact} SET k = NULL WHERE n = 1",
            _fact("(NULL, 0, 3, 1, 1)", "('c', 0, 9, 1, 1)"),
        ),
        ("DELETE FROM {other} WHERE k = 'b'",),
        ("DELETE FROM {other}",),
    ),
    "what is counted of a subquery has no rows": _trap(
        (
            (
                "SELECT g, count_if(NOT (k IN (SELECT k FROM {other}) AND n > 1)) AS c FROM {fact}"
                " GROUP BY g"
            ),
            (
                "SELECT k, (SELECT count_if(o.x > 5) FROM {other} o WHERE o.k = f.k) AS c"
                " FROM {fact} f"
            ),
        ),
        (_ROWS, _other("(0, 'a', 10, NULL)", "(1, 'b', 20, NULL)")),
        ("DELETE FROM {other} WHERE k = 'b'",),
        (_fact("('b', 0, 9, 1, 1)"),),
        ("DELETE FROM {other}",),
    ),
}
