"""Faults that may be planted into a source file: each one small change inside of one function.

A fault replaces a piece of a line and keeps the number of lines, so that kernels stay where their cached machine code
says that they are. It has an id of what it changes (file, function, operator, text of the line, and which of several
like it), not of where: ids stay the same while other lines come and go, and so does a drawing by seed.

What cannot matter to results is no place for a fault: docstrings, annotations, decorators, texts, assertions, errors
(tests of messages are tests of messages), and the lines and functions of `SKIPPED`.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any",
    "argmin": "argmax", "argmax": "argmin", "ones": "zeros", "zeros": "ones",
}  # fmt: skip
SIDES = {"left": "right", "right": "left"}

#: Functions without influence on results: what they say is for people.
SKIPPED_FUNCTIONS = re.compile(
    r"check_invariants|nbytes|memory|__repr__|__str__|explain|describe|text_of|why_.*|_why|_explain.*|_text.*|check_room"
)
#: Lines without influence on results, and why.
SKIPPED_LINES = {
    r"perf_counter|\.took\(|\bmetrics?\b|\.seconds\[": "only measures",
    r"\bprefetch\(": "only brings memory near",
    r"\bgrown\(|Emitter\(|\bPORTION\b|_LEAST_ROOM": "room to write to: more or less of it changes the number of calls",
    r"\bSMALL\b|_SMALL\b|\bALONE\b": "where several threads begin to pay",
    r"\bNotImplemented\b|TYPE_CHECKING": "never runs",
    r"np\.(zeros|ones)\(0\b": "nothing in it",
}
_SKIPPED_LINE = re.compile("|".join(SKIPPED_LINES))


@dataclass(frozen=True)
class Fault:
    file: str  # relative to the root
    function: str
    operator: str
    text: str  # of the line
    nth: int  # of the faults in this function with the same operator and text
    span: tuple[int, int, int, int]  # first line, column, last line, column of what is replaced (in bytes)
    new: str
    kernel: bool  # the function is compiled

    @property
    def id(self) -> str:
        return " | ".join((self.file, self.function, self.operator, self.text, str(self.nth)))

    def planted(self, source: str) -> str:
        """The source with this fault in it."""
        first, start, last, end = self.span
        lines = [line.encode() for line in source.splitlines(keepends=True)]
        head, tail = lines[first - 1][:start], lines[last - 1][end:]
        lines[first - 1 : last] = [head + self.new.encode() + tail + b"\n" * (last - first)]
        return b"".join(lines).decode()


def faults_in(root: Path, file: str) -> list[Fault]:
    """All faults that can be planted into a file, in order of place."""
    source = (root / file).read_text()
    found: list[Fault] = []
    seen: dict[tuple[str, str, str], int] = defaultdict(int)
    lines = source.splitlines()
    for function, kernel, node in _places(ast.parse(source)):
        for operator, span, new in _changes(node, source):
            text = lines[span[0] - 1].strip()
            if any(_SKIPPED_LINE.search(lines[n]) for n in range(span[0] - 1, span[2])):
                continue
            if lines[span[0] - 1].encode()[: span[1]].endswith(b"strict="):
                continue  # both are of one length, or it would be a fault of ours
            nth = seen[function, operator, text]
            seen[function, operator, text] += 1
            found.append(Fault(file, function, operator, text, nth, span, new, kernel))
    return found


def drawn(root: Path, files: Iterable[str], count: int, seed: int, without: Iterable[str] = ()) -> list[Fault]:
    """So many faults of these files: the operators take turns, and the seed says which of an operator's comes first."""
    by_operator = defaultdict(list)
    for fault in (fault for file in files for fault in faults_in(root, file)):
        if fault.id not in without:
            by_operator[fault.operator].append(fault)
    ranked = []
    for operator, mine in by_operator.items():
        mine.sort(key=lambda fault: _hash(seed, fault.id))
        ranked += [((turn, _hash(seed, operator)), fault) for turn, fault in enumerate(mine)]
    ranked.sort(key=lambda one: one[0])
    sound = (fault for _, fault in ranked if _compiles(fault.planted((root / fault.file).read_text())))
    return list(islice(sound, count))


def _hash(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest()


def _compiles(source: str) -> bool:
    try:
        compile(source, "fault", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


# -- places ----------------------------------------------------------------------------------------------------------


def _places(tree: ast.Module) -> Iterator[tuple[str, bool, ast.AST]]:
    """(function, whether it is compiled, node) of every node that may be changed."""

    def walk(node: ast.AST, function: str, kernel: bool) -> Iterator[tuple[str, bool, ast.AST]]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if SKIPPED_FUNCTIONS.fullmatch(node.name):
                return
            inner = f"{function}.{node.name}".lstrip(".")
            compiled = kernel or any("njit" in ast.unparse(one) for one in node.decorator_list)
            for child in node.body:
                if not _is_text(child):
                    yield from walk(child, inner, compiled)
            return
        if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        if function and not isinstance(node, ast.Module):
            yield function, kernel, node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, function, kernel)

    # Outside of functions there are tables, limits and defaults: those that are wrong fail at once, or only cost time.
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [child for child in node.body if isinstance(child, ast.FunctionDef | ast.ClassDef)]
    yield from walk(tree, "", False)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# -- operators -------------------------------------------------------------------------------------------------------

Change = tuple[str, tuple[int, int, int, int], str]  # operator, what is replaced, what by


def _changes(node: ast.AST, source: str) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        ends = [node.left, *node.comparators]
        for a, op, b in zip(ends, node.ops, ends[1:]):
            yield from _between("comparison", a, b, *COMPARISONS[type(op)], source)
    elif isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield from _between("and/or", node.values[0], node.values[1], old, new, source)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield from _between("arithmetic", node.left, node.right, *ARITHMETIC[type(node.op)], source)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield "not", _span(node), _source(node.operand, source)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            yield "not", _span(node.test), f"(not ({_source(node.test, source)}))"
        if isinstance(node, ast.If) and not isinstance(node.test, ast.Constant):
            yield "branch", _span(node.test), "True"
            yield "branch", _span(node.test), "False"
    elif isinstance(node, ast.Constant):
        if type(node.value) is int:
            yield "off by one", _span(node), str(node.value + 1)
        elif type(node.value) is bool:
            yield "true/false", _span(node), str(not node.value)
        elif node.value in SIDES:
            yield "side", _span(node), repr(SIDES[node.value])
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in NAMES:
            line, _, _, end = _span(node.func)
            if line == node.func.end_lineno:
                yield "min/max", (line, end - len(name), line, end), NAMES[name]
        elif name == "other" and len(node.args) == 1:
            yield "side", _span(node), _source(node.args[0], source)
    elif isinstance(node, ast.Slice):
        for end in (node.lower, node.upper):
            if end is not None and not isinstance(end, ast.Constant):
                yield "slice", _span(end), f"({_source(end, source)}) + 1"
    elif isinstance(node, ast.Break | ast.Continue):
        yield "drop", _span(node), "pass"
    elif isinstance(node, ast.AugAssign):
        yield "drop", _span(node), "pass"
        if type(node.op) in ARITHMETIC:
            old, new = ARITHMETIC[type(node.op)]
            yield from _between("arithmetic", node.target, node.value, f"{old}=", f"{new}=", source)
    elif isinstance(node, ast.Expr | ast.Assign):
        kept = node.value if isinstance(node, ast.Expr) else node.targets[0]
        if isinstance(kept, ast.Call | ast.Subscript | ast.Attribute):  # a name that is not assigned fails at once
            yield "drop", _span(node), "pass"


def _span(node: ast.AST) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _source(node: ast.AST, source: str) -> str:
    """On one line, if it was on several."""
    found = ast.get_source_segment(source, node)
    assert found is not None
    return found if "\n" not in found else ast.unparse(node)


def _between(operator: str, a: ast.AST, b: ast.AST, old: str, new: str, source: str) -> Iterator[Change]:
    """The token `old` that stands between two nodes."""
    _, _, line, start = _span(a)
    stop_line, stop, _, _ = _span(b)
    if line != stop_line:
        return
    between = source.splitlines()[line - 1].encode()[start:stop].decode()
    spaced = re.search(rf"(?<![\w<>=!*/]){re.escape(old)}(?![\w<>=])", between)
    if spaced:
        at = start + len(between[: spaced.start()].encode())
        yield operator, (line, at, line, at + len(old.encode())), new
