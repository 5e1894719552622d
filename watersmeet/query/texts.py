"""Functions of strings, on Arrow's compute kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .expr import Call
from .node import Builder, Node, Rows, as_null, constant_value, is_null_constant, make, whole_constant, wrong
from .types import BINARY, BOOL, STRING, exact
from .vector import Vector, both, mask, text_array

_LONGEST = 2**31 - 1
_BAD_PATTERN = (re.error, OverflowError, RecursionError)  # what compiling one may end in


def _text(node: Node, expr: Call, binary: bool = False) -> Node:
    if node.type.kind == "null":
        return as_null(node, STRING)
    if node.type.kind != "string" and not (binary and node.type.kind == "binary"):
        raise wrong(expr, node, "a string")
    return node


def mapped(name: str, function: Callable[[Any], Any]) -> Builder:
    """A function from string to string."""

    def build(args: list[Node], expr: Call) -> Node:
        node = _text(args[0], expr)
        inner = node.run

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            return function(data), valid

        return make(name, (node,), STRING, expr, run)

    return build


def _cased(fast: Callable[[Any], Any], full: Callable[[str], str]) -> Callable[[Any], Any]:
    """A change of case; Arrow's has no letters that become two, so beyond ASCII it is Python's, as Java's."""

    def change(data: Any) -> Any:
        if isinstance(data, pa.Scalar):
            return data if not data.is_valid else pa.scalar(full(data.as_py()), pa.large_string())
        if pc.all(pc.string_is_ascii(data)).as_py() is not False:
            return fast(data)
        return pa.array([None if text is None else full(text) for text in data.to_pylist()], pa.large_string())

    return change


def _trim(name: str) -> Builder:
    trim = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[name]

    def build(args: list[Node], expr: Call) -> Node:
        node = _text(args[0], expr)
        characters = " " if len(args) == 1 else _fixed_text(args[1], expr)
        inner = node.run

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            return trim(data, characters), valid

        return make(name, (node, *args[1:]), STRING, expr, run)

    return build


def _fixed_text(node: Node, expr: Call) -> str:
    if node.op != "constant" or node.type.kind != "string" or is_null_constant(node):
        raise ValueError(f"on has {expr}; {node.expr} must be a constant string there")
    return constant_value(node)


def length(args: list[Node], expr: Call) -> Node:
    node = _text(args[0], expr, binary=True)
    inner, count = node.run, pc.utf8_length if node.type.kind == "string" else pc.binary_length

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        if isinstance(data, pa.Scalar):
            return np.array([count(data).as_py() or 0], np.int64), valid
        sizes = count(text_array(data, rows.count)).fill_null(0)
        return sizes.to_numpy(zero_copy_only=False).astype(np.int64), valid

    return make("length", (node,), exact(0, _LONGEST), expr, run)


def substring(args: list[Node], expr: Call) -> Node:
    """Positions from 1; 0 is 1; a negative one counts from the end, as in Spark."""
    node = _text(args[0], expr)
    numbers = [whole_constant(arg, expr, "position and length") for arg in args[1:]]
    numbers = [min(max(number, -_LONGEST), _LONGEST) for number in numbers]  # no text is longer
    start, size = numbers[0], numbers[1] if len(numbers) > 1 else _LONGEST
    inner = node.run

    def cut(data: Any) -> Any:
        if start >= 0:
            first = max(start - 1, 0)
            return pc.utf8_slice_codeunits(data, first, max(first, first + size))
        if size < _LONGEST:  # the length counts from the position, even where that lies before the text
            texts = [data.as_py()] if isinstance(data, pa.Scalar) else data.to_pylist()
            cuts = [
                None if t is None else t[max(len(t) + start, 0) : max(len(t) + start + size, 0)]
                for t in texts
            ]
            return pa.array(cuts, pa.large_string())
        return pc.utf8_slice_codeunits(data, start)

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        return cut(data), valid

    return make("substring", (node, *args[1:]), STRING, expr, run)


def concat(args: list[Node], expr: Call) -> Node:
    binary = all(node.type.kind == "binary" for node in args)
    nodes = [_text(node, expr, binary) for node in args]
    runs = [node.run for node in nodes]
    kind = pa.large_binary() if binary else pa.large_string()
    glue = pa.scalar(b"" if binary else "", kind)

    def run(rows: Rows) -> Vector:
        parts, valid = [], None
        for each in runs:
            data, also = each(rows)
            parts.append(data.cast(kind))
            valid = both(valid, also)
        return pc.binary_join_element_wise(*parts, glue), valid

    return make("concat", nodes, BINARY if binary else STRING, expr, run)


def _like_pattern(pattern: str, escape: str) -> str:
    parts, i = [], 0
    while i < len(pattern):
        letter = pattern[i]
        if letter == escape and i + 1 < len(pattern):
            i += 1
            parts.append(re.escape(pattern[i]))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
        i += 1
    return "".join(parts)


def matching(name: str) -> Builder:
    """like, ilike, rlike: by Python's regular expressions, a pattern compiled once where it is constant."""

    def compiled(pattern: str, escape: str) -> Callable[[str], Any]:
        if name == "rlike":
            return re.compile(pattern).search
        flags = re.DOTALL | (re.IGNORECASE if name == "ilike" else 0)
        return re.compile(_like_pattern(pattern, escape), flags).fullmatch

    def build(args: list[Node], expr: Call) -> Node:
        node, pattern = _text(args[0], expr), _text(args[1], expr)
        escape = "\\" if len(args) < 3 else _fixed_text(args[2], expr)
        if len(escape) != 1:
            raise ValueError(f"on has {expr}; the escape must be one character")
        fixed = None
        if pattern.op == "constant" and constant_value(pattern) is not None:
            try:
                fixed = compiled(constant_value(pattern), escape)
            except _BAD_PATTERN as error:
                raise ValueError(f"on has a bad pattern in {expr}: {error}") from None
        inner, patterns = node.run, pattern.run

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            forms, also = patterns(rows)
            texts = [data.as_py()] if isinstance(data, pa.Scalar) else data.to_pylist()
            if fixed is not None:
                return np.array([t is not None and fixed(t) is not None for t in texts], bool), valid
            many = [forms.as_py()] * len(texts) if isinstance(forms, pa.Scalar) else forms.to_pylist()
            texts = texts * len(many) if len(texts) < len(many) else texts
            answers: list[bool | None] = []
            for text, form in zip(texts, many, strict=True):
                try:
                    answers.append(
                        None if text is None or form is None else bool(compiled(form, escape)(text))
                    )
                except _BAD_PATTERN:  # a pattern from the data may be anything
                    answers.append(None)
            known = np.array([answer is not None for answer in answers], bool)
            return np.array([bool(answer) for answer in answers], bool), both(both(valid, also), known)

        return make(name, (node, pattern, *args[2:]), BOOL, expr, run)

    return build


def affix(name: str) -> Builder:
    """starts_with, ends_with, contains."""
    fast = {"starts_with": pc.starts_with, "ends_with": pc.ends_with, "contains": pc.match_substring}[name]
    slow = {"starts_with": str.startswith, "ends_with": str.endswith, "contains": str.__contains__}[name]

    def build(args: list[Node], expr: Call) -> Node:
        node, part = _text(args[0], expr), _text(args[1], expr)
        inner, parts = node.run, part.run

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            other, also = parts(rows)
            if isinstance(other, pa.Scalar) and other.is_valid:
                return mask(fast(data, other.as_py())), valid
            texts = text_array(data, rows.count).to_pylist()
            others = text_array(other, rows.count).to_pylist()
            found = [
                a is not None and b is not None and slow(a, b) for a, b in zip(texts, others, strict=True)
            ]
            return np.array(found, bool), both(valid, also)

        return make(name, (node, part), BOOL, expr, run)

    return build


TEXTS: dict[str, tuple[Builder, int, int]] = {
    "upper": (mapped("upper", _cased(pc.ascii_upper, str.upper)), 1, 1),
    "lower": (mapped("lower", _cased(pc.ascii_lower, str.lower)), 1, 1),
    "trim": (_trim("trim"), 1, 2),
    "ltrim": (_trim("ltrim"), 1, 2),
    "rtrim": (_trim("rtrim"), 1, 2),
    "length": (length, 1, 1),
    "substring": (substring, 2, 3),
    "concat": (concat, 1, 10**6),
    "||": (concat, 2, 2),
    "like": (matching("like"), 2, 3),
    "ilike": (matching("ilike"), 2, 3),
    "rlike": (matching("rlike"), 2, 2),
    "starts_with": (affix("starts_with"), 2, 2),
    "ends_with": (affix("ends_with"), 2, 2),
    "contains": (affix("contains"), 2, 2),
}
