"""The derivative of a function along a direction, as a function of the same operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from tausid.export.operations import Function, Operation, Value, concat, write_function

# The slope of each elementwise function of one vector, from its argument a and its value v.
SLOPES: dict[str, Callable[[Value, Value], Value]] = {
    "tanh": lambda a, v: v.constant(1.0) - v * v,
    "exp": lambda a, v: v,
    "expm1": lambda a, v: v + 1.0,
    "log": lambda a, v: a.constant(1.0) / a,
    "log1p": lambda a, v: a.constant(1.0) / (a + 1.0),
    "sqrt": lambda a, v: v.constant(0.5) / v,
    "abs": lambda a, v: a.constant(1.0) - a.binary("less", 0.0) * 2.0,
    "sin": lambda a, v: a.unary("cos"),
    "cos": lambda a, v: a.unary("sin") * -1.0,
}
# What a change d of the first, and of the second, of two vectors does to a value;
# where both are equal, the first counts.
TERMS: dict[str, tuple[Callable[[Value, Value, Value], Value], Callable[[Value, Value, Value], Value]]] = {
    "add": (lambda a, b, d: d, lambda a, b, d: d),
    "subtract": (lambda a, b, d: d, lambda a, b, d: d * -1.0),
    "multiply": (lambda a, b, d: d * b, lambda a, b, d: d * a),
    "divide": (lambda a, b, d: d / b, lambda a, b, d: d * a / (b * b) * -1.0),
    "maximum": (lambda a, b, d: d - d * a.binary("less", b), lambda a, b, d: d * a.binary("less", b)),
    "minimum": (lambda a, b, d: d - d * b.binary("less", a), lambda a, b, d: d * b.binary("less", a)),
}


@lru_cache(maxsize=32)
def along(function: Function) -> Function:
    """`df/dx vx + df/du vu` as a function of x and `[u; vx; vu]`; an output at its limit has no derivative."""
    nx, nu = (function.operations[i].size for i in range(2))

    def body(x: Value, given: Value) -> Value:
        u, vx, vu = (given.pick(range(a, b)) for a, b in ((0, nu), (nu, nu + nx), (nu + nx, 2 * nu + nx)))
        values, changes = [x, u], [vx, vu, *[None] * (len(function.operations) - 2)]
        for i, operation in enumerate(function.operations[2:], start=2):
            a = [values[j] for j in operation.inputs]
            values.append(x.make(operation.kind, a, operation.size, operation.array))
            changes[i] = _change(operation, values[i], a, [changes[j] for j in operation.inputs])
        return changes[-1] or x.constant(np.zeros(function.size))

    return write_function(nx, 2 * nu + nx, body)


def _change(operation: Operation, v: Value, a: Sequence[Value], d: Sequence[Value | None]) -> Value | None:
    """The change of a value with those of its arguments; None for what does not change."""
    if all(change is None for change in d):
        return None
    if operation.kind == "concat":
        return concat(
            [v.constant(np.zeros(b.size)) if change is None else change for b, change in zip(a, d, strict=True)]
        )
    if operation.kind in ("linear", "pick"):
        return v.make(operation.kind, [change for change in d if change], operation.size, operation.array)
    if len(a) == 1:
        terms = [SLOPES[operation.kind](a[0], v) * change for change in d if change]
    else:
        terms = [term(a[0], a[1], change) for term, change in zip(TERMS[operation.kind], d, strict=True) if change]
    total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
    return total if total.size == operation.size else total * np.ones(operation.size)
