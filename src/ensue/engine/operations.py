"""The pointwise operations that a step may be made of: each with its tensor form, its C form and its derivative.

This table is all that tracing, differentiating and printing know of them: a new operation is a new row. Comparisons are
written so that NaN passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ensue.engine.graph import Node

Gradients = tuple[Node | None, ...]


@dataclass(frozen=True)
class Operation:
    """A pointwise operation."""

    plain: Callable[..., Any]
    """On tensors."""
    c: str
    """As an expression of C; {0}, {1} and {2} are the arguments."""
    derivative: Callable[[Node, Node], Gradients]
    """From the node y and the error g at y to the error at each argument; None where none flows."""
    is_condition: bool = False
    """Whether its values are true or false."""

    @property
    def is_arithmetic(self) -> bool:
        """Whether its C is for vectors, too: it has no call and no choice."""
        return "(" not in self.c


COSTLY = frozenset({"div", "sigmoid", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf"})
"""Operations that take longer than to read a number from memory."""


def _nothing(y: Node, g: Node) -> Gradients:
    return (None,) * len(y.args)


def _choice(y: Node, g: Node) -> Gradients:
    condition = y.args[0]
    return None, _where(condition, g, 0.0), _where(condition, 0.0, g)


def _where(condition: Node, a: Node | float, b: Node | float) -> Node:
    return condition.graph.pointwise("where", condition, a, b)


def _larger(y: Node, g: Node) -> Gradients:
    """Where both are alike, each gets half; where one is NaN, each gets all."""
    a, b = y.args
    shared = _where(y.graph.pointwise("eq", a, b), g * 0.5, g)
    worse, better = (y.graph.pointwise(op, a, b) for op in (("lt", "gt") if y.op == "maximum" else ("gt", "lt")))
    return _where(worse, 0.0, shared), _where(better, 0.0, shared)


def _sign(y: Node, g: Node) -> Gradients:
    (a,) = y.args
    negative = _where(y.graph.pointwise("lt", a, 0.0), -g, 0.0)
    return (_where(y.graph.pointwise("gt", a, 0.0), g, negative),)


def _apply(op: str, node: Node) -> Node:
    return node.graph.pointwise(op, node)


def _condition(plain: Callable[..., Any], c: str) -> Operation:
    return Operation(plain, c, _nothing, is_condition=True)


OPERATIONS: dict[str, Operation] = {
    "add": Operation(torch.add, "{0} + {1}", lambda y, g: (g, g)),
    "sub": Operation(torch.sub, "{0} - {1}", lambda y, g: (g, -g)),
    "mul": Operation(torch.mul, "{0} * {1}", lambda y, g: (g * y.args[1], g * y.args[0])),
    "div": Operation(torch.div, "{0} / {1}", lambda y, g: (g / y.args[1], -(g * y) / y.args[1])),
    "neg": Operation(torch.neg, "-{0}", lambda y, g: (-g,)),
    "sigmoid": Operation(torch.sigmoid, "sigmoid_({0})", lambda y, g: (g * (y * (1 - y)),)),
    "tanh": Operation(torch.tanh, "tanh_({0})", lambda y, g: (g * (1 - y * y),)),
    "relu": Operation(
        torch.relu, "({0} < 0 ? 0 : {0})", lambda y, g: (_where(y.graph.pointwise("le", y, 0.0), 0.0, g),)
    ),
    "exp": Operation(torch.exp, "exp_({0})", lambda y, g: (g * y,)),
    "expm1": Operation(torch.expm1, "expm1_({0})", lambda y, g: (g * _apply("exp", y.args[0]),)),
    "log": Operation(torch.log, "log_({0})", lambda y, g: (g / y.args[0],)),
    "log1p": Operation(torch.log1p, "log1p_({0})", lambda y, g: (g / (y.args[0] + 1),)),
    "sqrt": Operation(torch.sqrt, "sqrt_({0})", lambda y, g: (g * 0.5 / y,)),
    "rsqrt": Operation(torch.rsqrt, "1 / sqrt_({0})", lambda y, g: (g * -0.5 * (y * y * y),)),
    "sin": Operation(torch.sin, "sin_({0})", lambda y, g: (g * _apply("cos", y.args[0]),)),
    "cos": Operation(torch.cos, "cos_({0})", lambda y, g: (-(g * _apply("sin", y.args[0])),)),
    "erf": Operation(
        torch.erf, "erf_({0})", lambda y, g: (g * (2 / math.sqrt(math.pi)) * _apply("exp", -(y.args[0] * y.args[0])),)
    ),
    "abs": Operation(torch.abs, "fabs_({0})", _sign),
    "maximum": Operation(torch.maximum, "({0} > {1} || {0} != {0} ? {0} : {1})", _larger),
    "minimum": Operation(torch.minimum, "({0} < {1} || {0} != {0} ? {0} : {1})", _larger),
    "stop": Operation(torch.clone, "{0}", _nothing),
    "copy": Operation(torch.clone, "{0}", lambda y, g: (g,)),
    "where": Operation(torch.where, "({0} ? {1} : {2})", _choice),
    "gt": _condition(torch.gt, "({0} > {1})"),
    "ge": _condition(torch.ge, "({0} >= {1})"),
    "lt": _condition(torch.lt, "({0} < {1})"),
    "le": _condition(torch.le, "({0} <= {1})"),
    "eq": _condition(torch.eq, "({0} == {1})"),
    "ne": _condition(torch.ne, "({0} != {1})"),
    "and": _condition(torch.logical_and, "({0} && {1})"),
    "or": _condition(torch.logical_or, "({0} || {1})"),
    "not": _condition(torch.logical_not, "(!{0})"),
}
