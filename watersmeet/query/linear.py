"""Linear forms: exact sums taken apart into atoms with coefficients, and put together again."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from .arithmetic import minus, product, total
from .expr import Constant
from .node import Node, constant, constant_value, is_null_constant
from .types import decimal


@dataclass
class Linear:
    """sum(coefficient * atom) + rest, over countable atoms that are not sums themselves."""

    atoms: dict[tuple, tuple[Fraction, Node]]
    rest: Fraction

    def plus(self, other: Linear, factor: Fraction = Fraction(1)) -> Linear:
        atoms = dict(self.atoms)
        for key, (coefficient, node) in other.atoms.items():
            coefficient = atoms[key][0] + coefficient * factor if key in atoms else coefficient * factor
            atoms[key] = (coefficient, node)
        return Linear(atoms, self.rest + other.rest * factor)

    def times(self, factor: Fraction) -> Linear:
        return Linear({}, Fraction(0)).plus(self, factor)

    def only(self, side: str) -> Linear:
        """The atoms of one side."""
        return Linear({k: p for k, p in self.atoms.items() if p[1].sides == {side}}, Fraction(0))

    @property
    def cancels(self) -> bool:
        """Whether some atom dropped out (`l.a - l.a`); it may still be null, so the form tells not all."""
        return any(not coefficient for coefficient, _ in self.atoms.values())


def linear(node: Node) -> Linear | None:
    """A countable node as a linear form; None where a null constant is in it."""
    op, args = node.op, node.args
    if op == "constant":
        if is_null_constant(node):
            return None
        return Linear({}, Fraction(int(constant_value(node)), 10**node.type.scale))
    if op == "rescale":
        return linear(args[0])
    if op in ("neg", "midnight"):
        inner = linear(args[0])
        return None if inner is None else inner.times(Fraction(-1 if op == "neg" else 86_400))
    if op in ("+", "-"):
        a, b = linear(args[0]), linear(args[1])
        return None if a is None or b is None else a.plus(b, Fraction(1 if op == "+" else -1))
    if op == "*":
        for one, other in (args, args[::-1]):
            if one.op == "constant":
                factor, inner = linear(one), linear(other)
                return None if factor is None or inner is None else inner.times(factor.rest)
    return Linear({node.key: (Fraction(1), node)}, Fraction(0))


_TEXT = Constant(0)


def sum_of(form: Linear) -> Node:
    """A linear form with whole coefficients, and a decimal constant, as a node."""
    answer: Node | None = None
    for coefficient, node in form.atoms.values():
        assert coefficient.denominator == 1
        size = abs(coefficient.numerator)
        part = node if size == 1 else product(node, constant(size), _TEXT)
        if answer is None:
            answer = part if coefficient > 0 else _negative(part)
        else:
            answer = total("+" if coefficient > 0 else "-", answer, part, "exact", _TEXT)
    if form.rest or answer is None:
        answer = _shifted(answer, form.rest)
    return answer


def _negative(node: Node) -> Node:
    zero = constant(0)
    if node.type.kind in ("exact", "duration"):
        return minus([node], _TEXT)
    return total("-", zero, node, "exact", _TEXT)


def _shifted(node: Node | None, amount: Fraction) -> Node:
    scale = 0
    while (amount * 10**scale).denominator != 1:
        scale += 1
    shift = constant(decimal(int(amount * 10**scale), scale))
    return shift if node is None else total("+", node, shift, "exact", _TEXT)


def whole_form(form: Linear) -> tuple[Linear, int]:
    """form * d with whole coefficients and a constant that is a finite decimal, and the least such d > 0."""
    least = 1
    for coefficient, _ in form.atoms.values():
        least = least * coefficient.denominator // gcd(least, coefficient.denominator)
    rest = (form.rest * least).denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return form.times(Fraction(least * rest)), least * rest


def text_of(form: Linear) -> str:
    parts = []
    for coefficient, node in form.atoms.values():
        size = abs(coefficient)
        parts.append(
            ("- " if coefficient < 0 else "+ ") + (f"{size} * " if size != 1 else "") + str(node.expr)
        )
    text = " ".join(parts)
    return text[2:] if text.startswith("+ ") else text
