"""Predicates at random: as loose words, and as calls of every function with arguments of any kind."""

from __future__ import annotations

from hypothesis import strategies as st

from query.data import SCHEMA
from watersmeet.query.evaluate import FUNCTIONS

COLUMNS = [f"{side}.{name}" for side in "lr" for name in SCHEMA.names]
NUMBERS = ["0", "1", "-1", "2", "30", "-31", "0.5", "1.50", "1e308", "1e-320", "5e0", "9223372036854775807"]
NUMBERS += ["-9223372036854775808", "99999999999999999999", "1" * 40 + ".5", "0." + "0" * 40 + "1", "2147483647"]
STRINGS = ["''", "' '", "'a'", "'é'", "'%a_'", "'\\\\'", "'['", "'2024-02-29'", "'9999-12-31 23:59:59'", "'-1e3'"]
STRINGS += ["'NaN'", "x''", "x'ff'", "'(a'", "'hour'", "'year'", "'!'"]
TIMES = ["date '0001-01-01'", "date '9999-12-31'", "timestamp '9999-12-31 23:59:59.999999'", "time '23:59:59'"]
TIMES += ["timestamp '2024-01-01 00:00:00+14:00'", "interval '999999999' days", "interval '-1' microsecond"]
CONSTANTS = [*NUMBERS, *STRINGS, *TIMES, "true", "false", "null"]
INFIX = ["=", "<>", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "div", "||", "and", "or"]
INFIX += ["like", "not like", "ilike", "rlike", "is distinct from"]
TARGETS = ["tinyint", "int", "bigint", "decimal(38,38)", "decimal(76,3)", "decimal(3,1)", "float", "double",
    "boolean"]
TARGETS += ["string", "binary", "date", "time", "timestamp", "timestamp_ntz", "array<int>", "varchar(3)",
    "decimal(0)"]
NAMES = [name for name in FUNCTIONS if name.isidentifier()] + ["if", "nvl", "frobnicate", "sum", "date_add",
    "startswith"]



def _sample(columns: str, constants: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{side}.{name}" for side in "lr" for name in columns.split()]) | st.sampled_from(constants)


def _grown(leaves: st.SearchStrategy[str], grow) -> st.SearchStrategy[str]:
    return st.recursive(leaves, grow, max_leaves=4)


def _one(names: str, inner: st.SearchStrategy[str], *others: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A call of one of these functions."""
    args = st.tuples(inner, *others).map(", ".join)
    return st.builds("{}({})".format, st.sampled_from(names.split()), args)


def _chosen(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """What takes operands of any one kind."""
    return st.one_of(
        _one("coalesce nullif least greatest nvl", inner, inner),
        st.builds("case when l.flag then {} else {} end".format, inner, inner),
        st.builds("if(r.a > 1, {}, null)".format, inner),
    )


def _cast(inner: st.SearchStrategy[str], targets: str) -> st.SearchStrategy[str]:
    return st.builds("cast({} as {})".format, inner, st.sampled_from(targets.split()))


_whole = st.sampled_from(["0", "1", "-1", "2", "13", "-16", "30", "2147483648", "-9223372036854775808"])
_flags = _sample("flag", ["true", "false", "null"])
_texts0 = _sample("s s k", [text for text in STRINGS if text.startswith("'")])
_times0 = _sample("t0 t6 t9 day d64", [text for text in TIMES if text.startswith(("date",
    "timestamp")) and "+" not in text])
_spans0 = _sample("span", [text for text in TIMES if text.startswith("interval")])
_NUMERIC = "tinyint int bigint decimal(38,38) decimal(76,3) decimal(3,1) double"

numbers = _grown(
    _sample("a b u v d e x y f", NUMBERS),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "div"]), inner),
        _one("abs sign floor ceil sqrt exp ln round", inner),
        _one("round", inner, st.sampled_from(["0", "1", "-1", "13", "-16", "30", "-30"])),
        _one("pow", inner, inner),
        st.builds("- {}".format, inner),
        _cast(inner, _NUMERIC + " float"),
        _cast(_flags, _NUMERIC + " float"),
        _cast(_texts0, _NUMERIC),
        _one("length", _texts0),
        _one("year month day hour minute second", _times0),
        _one("datediff", _times0, _times0),
        _chosen(inner),
    ),
)
strings = _grown(
    _texts0,
    lambda inner: st.one_of(
        _one("upper lower trim ltrim rtrim", inner),
        _one("trim", inner, st.sampled_from(STRINGS[:4])),
        _one("substring", inner, _whole),
        _one("substring", inner, _whole, _whole),
        _one("concat", inner, inner),
        st.builds("({} || {})".format, inner, inner),
        _cast(_sample("a b u d", ["1", "0.000001"]), "string"),
        _cast(_flags, "string"),
        _chosen(inner),
    ),
)
moments = _grown(
    _times0,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-"]), _spans0),
        st.builds("date_trunc('{}', {})".format, st.sampled_from(["year", "quarter", "month", "week", "hour"]),
            inner),
        _one("to_date", inner),
        _one("to_date", _texts0),
        _cast(inner, "date timestamp_ntz"),
        _cast(_sample("a b", ["1"]), "timestamp_ntz"),
        _chosen(inner),
    ),
)
instants = _grown(
    _sample("zs", ["timestamp '2024-01-01 00:00:00+14:00'"]),
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, _spans0),
        st.builds("date_trunc('{}', {})".format, st.sampled_from(["year", "week", "minute"]), inner),
        _cast(_times0, "timestamp"),
        _cast(inner, "timestamp"),
    ),
)
times = _sample("tod", ["time '23:59:59'"]) | _cast(_times0, "time") | st.builds("(l.tod + {})".format, _spans0)
spans = _grown(
    _spans0,
    lambda inner: st.one_of(
        st.builds("({} - {})".format, moments, moments),
        st.builds("({} - {})".format, instants, instants),
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-"]), inner),
        st.builds("({} * {})".format, inner, _sample("a b u", ["3", "-9223372036854775808"])),
        _one("abs", inner),
        _chosen(inner),
    ),
)


def _compared(family: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} {} {}".format, family, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), family),
        st.builds("{} between {} and {}".format, family, family, family),
        st.builds("{} in ({}, {})".format, family, family, family),
        st.builds("{} is null".format, family),
    )


_matches = st.builds("{} {} {}".format, strings, st.sampled_from(["like", "not like", "ilike", "rlike"]), strings)
_matches |= _one("starts_with ends_with contains", strings, strings)
_truths = _one("isnan", numbers) | _cast(_texts0, "boolean") | _cast(numbers, "boolean")
_families = (numbers, numbers, strings, moments, instants, times, spans)
#: Well formed, and mostly of types that go together.
calls = st.one_of(*(_compared(family) for family in _families), _matches, _truths)

_anything = st.sampled_from(COLUMNS) | st.sampled_from(CONSTANTS)
#: Well formed, of any types.
mixed = st.recursive(
    _anything,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(INFIX), inner),
        st.builds("{}({})".format, st.sampled_from(NAMES), st.lists(inner, max_size=4).map(", ".join)),
        _cast(inner, " ".join(TARGETS)),
        st.builds("({} {})".format, inner, st.sampled_from(["is null", "is true", "is not false", "is unknown"])),
        st.builds("{} {}".format, st.sampled_from(["not", "-", "+"]), inner),
    ),
    max_leaves=5,
)

_words = [*COLUMNS, *CONSTANTS, *INFIX, *NAMES, *TARGETS, "(", ")", "(", ")", ",", "'", '"', "`", ";", "--", "/*",
    ".", ".."]
_words += ["case", "when", "then", "else", "end", "between", "in", "is", "not", "null", "cast", "as", "interval",
    "days"]
_words += ["select", "from", "over", "exists", "escape", "distinct", "[", "]", "{", "}", ":", "::", "@", "?", "$$",
    "\0", "é"]
_words += ["extract", "month", "to", "all", "any", "array", "struct", "->", "=>", "lateral", "1e", "0x", "x'", "l",
    "r", "\n"]
#: Anything at all.
words = st.lists(st.sampled_from(_words), max_size=12).map(" ".join) | st.text(max_size=20)
