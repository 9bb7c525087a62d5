"""Random groups of rows by windows of time; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.groups import aggregations
from tests.engine.oracle.relations import KEYS, Below, Relation

_WINDOWS = (
    "window({0}, '1 hour')",
    "window({0}, '1 day', '1 day', '-3 hours')",
    "window({0}, '1 hour', '20 minutes')",
    "session_window({0}, '30 minutes')",
)


@st.composite
def time_windows(draw: st.DrawFn, below: Below) -> Relation:
    """Groups by a window of time, alone or together with a key; the window is selected or not."""
    source = draw(below)
    moments, keys = source.column_names("moment", "wall"), source.column_names(*KEYS)
    if not moments:
        return source
    moment = draw(st.sampled_from(moments))
    window = draw(st.sampled_from(_WINDOWS)).format(moment)
    result = dict(source.columns)[moment]
    name = window.split("(")[0]
    outputs = draw(
        st.sampled_from(
            (
                ((f"{name}.start", result),),
                ((f"{name}.end", result), (name, "opaque")),
                ((name, "opaque"),),
                (),
            )
        )
    )
    groups = [window]
    if keys and draw(st.booleans()):
        key = draw(st.sampled_from(keys))
        groups.append(key)
        outputs = (*outputs, (key, dict(source.columns)[key]))
    texts = [text for text, _ in outputs] + ["count(*)", draw(aggregations(source))]
    kinds = [kind for _, kind in outputs] + ["int", "opaque"]
    named = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
    sql = f"SELECT {named} FROM ({source.sql}) GROUP BY {', '.join(groups)}"
    return Relation(sql, tuple((f"c{i}", kind) for i, kind in enumerate(kinds)))
