"""DuckDB as the second, independent oracle: the same join as one SQL query over all tuples at once."""

from __future__ import annotations

from collections import Counter

import duckdb
from oracle import Hopping, Last, Window, Within


def window_sql(window: Window, time: tuple[str, str] = ("ts", "ts")) -> str:
    """The window as a condition on `l` and `r`.

    `last` wants the columns `pos`, `arrived` and `others`: a tuple's position in its stream, its order over
    both streams, and the number of tuples of the other stream before it."""
    lt, rt = f"l.{time[0]}", f"r.{time[1]}"
    if isinstance(window, Within):
        return f"({rt} - {lt} between -({window.before}) and {window.after})"
    if isinstance(window, Last):
        return (
            f"((l.arrived > r.arrived and r.pos >= l.others - {window.n_right})"
            f" or (r.arrived > l.arrived and l.pos >= r.others - {window.n}))"
        )
    assert isinstance(window, Hopping)
    size, slide = window.size, window.slide

    def floor_div(a: str) -> str:  # on integers of any sign
        return f"(({a}) - ((({a}) % {slide}) + {slide}) % {slide}) // {slide}"

    first = f"greatest({floor_div(f'{lt} - {size}')} + 1, {floor_div(f'{rt} - {size}')} + 1)"
    last = f"least({floor_div(lt)}, {floor_div(rt)})"
    return f"({first} <= {last})"


def join_sql(condition: str, how: str) -> str:
    """The ids of the result rows; null where a side is null-extended or not part of the result."""
    if how in ("semi", "anti"):
        negation = "not " if how == "anti" else ""
        return f"select l.id, null from l where {negation}exists (select 1 from r where {condition})"
    kind = {"inner": "join", "left": "left join", "right": "right join", "full": "full join"}[how]
    if how == "full":  # DuckDB has no full join on an arbitrary condition
        return (
            f"select l.id, r.id from l left join r on {condition} union all "
            f"select null, r.id from r where not exists (select 1 from l where {condition})"
        )
    return f"select l.id, r.id from l {kind} r on {condition}"


def answer(connection: duckdb.DuckDBPyConnection, condition: str, how: str) -> Counter:
    return Counter(connection.execute(join_sql(condition, how)).fetchall())
