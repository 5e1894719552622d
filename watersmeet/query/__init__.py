"""Predicates: SQL text to expressions, expressions to a plan of int64 keys, ranges and a residual."""

from .expr import Call, Column, Constant, Expr
from .parse import parse
from .plan import JoinPlan, Keys, Probe, Residual, SidePlan, Term, compile_plan
from .predicate import predicate

__all__ = [
    "Call",
    "Column",
    "Constant",
    "Expr",
    "JoinPlan",
    "Keys",
    "Probe",
    "Residual",
    "SidePlan",
    "Term",
    "compile_plan",
    "parse",
    "predicate",
]
