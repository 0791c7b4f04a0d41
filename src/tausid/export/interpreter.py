"""What a description computes, by numpy: the reference of every target. States and inputs may have leading axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tausid.data.records import UNIFORM_TOLERANCE
from tausid.engine.steppers import take_step
from tausid.export.description import Description
from tausid.export.operations import Function, Operation
from tausid.shapes import Float

# The slope of each elementwise function of one vector, from its argument and its value.
SLOPES: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "tanh": lambda a, v: 1.0 - v * v,
    "exp": lambda a, v: v,
    "expm1": lambda a, v: v + 1.0,
    "log": lambda a, v: 1.0 / a,
    "log1p": lambda a, v: 1.0 / (1.0 + a),
    "sqrt": lambda a, v: 0.5 / v,
    "abs": lambda a, v: np.where(a < 0, -1.0, 1.0),
    "sin": lambda a, v: np.cos(a),
    "cos": lambda a, v: -np.sin(a),
}
# The slopes of each elementwise function of two vectors; where both are equal, that of the first.
PARTIAL: dict[str, Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]] = {
    "add": lambda a, b: (1.0, 1.0),
    "subtract": lambda a, b: (1.0, -1.0),
    "multiply": lambda a, b: (b, a),
    "divide": lambda a, b: (1.0 / b, -a / (b * b)),
    "maximum": lambda a, b: ((a >= b) * 1.0, (a < b) * 1.0),
    "minimum": lambda a, b: ((a <= b) * 1.0, (a > b) * 1.0),
}


def evaluate(function: Function, x: Float[np.ndarray, "*B nx"], u: Float[np.ndarray, "*B nu"]) -> np.ndarray:
    """The value of a function, shape (*B, size)."""
    return _forward(function, x, u)[-1]


def jacobian(
    function: Function, x: Float[np.ndarray, "nx"], u: Float[np.ndarray, "nu"]
) -> tuple[Float[np.ndarray, "n nx"], Float[np.ndarray, "n nu"]]:
    """The derivatives of a function with respect to x and u; outputs at their limits have none."""
    values, tangents = _forward(function, x, u), list[np.ndarray]()
    directions = np.eye(len(x) + len(u))
    given = {"state": directions[:, : len(x)], "input": directions[:, len(x) :]}
    for operation, value in zip(function.operations, values, strict=True):
        a = [values[i] for i in operation.inputs]
        tangents.append(_tangent(operation, value, a, [tangents[i] for i in operation.inputs], given))
    whole = np.broadcast_to(tangents[-1], (len(directions), function.size)).T
    return whole[:, : len(x)], whole[:, len(x) :]


def step(
    description: Description,
    x: Float[np.ndarray, "*B nx"],
    u: Float[np.ndarray, "*B nu"],
    u_next: Float[np.ndarray, "*B nu"],
    dt: float,
) -> Float[np.ndarray, "*B nx"]:
    """The state after `dt` seconds; `u_next`, the inputs then, counts for those with first-order hold."""
    parts = max(int(np.ceil(dt / description.longest_step - UNIFORM_TOLERANCE)), 1) * description.substeps
    for i in range(parts):
        x = take_step(
            description.stepper,
            lambda x, u: evaluate(description.f, x, u),
            lambda fraction, i=i: u + (i + fraction) / parts * description.hold * (u_next - u),  # type: ignore[misc]
            x,
            np.full((*x.shape[:-1], 1), dt / parts),
        )
    return x


def simulate(
    description: Description,
    x0: Float[np.ndarray, "nx"],
    u: Float[np.ndarray, "N nu"],
    t: Float[np.ndarray, "N"],
) -> tuple[Float[np.ndarray, "N nx"], Float[np.ndarray, "N ny"]]:
    """States and outputs at the time stamps."""
    x = [np.asarray(x0, float)]
    for k, dt in enumerate(np.diff(t)):
        x.append(step(description, x[-1], u[k], u[k + 1], float(dt)))
    states = np.stack(x)
    return states, evaluate(description.g, states, u)


def _forward(function: Function, x: np.ndarray, u: np.ndarray) -> list[np.ndarray]:
    values: list[np.ndarray] = []
    for operation in function.operations:
        values.append(_value(operation, [values[i] for i in operation.inputs], x, u))
    values[-1] = np.broadcast_to(values[-1], (*x.shape[:-1], function.size))
    return values


def _value(operation: Operation, a: list[np.ndarray], x: np.ndarray, u: np.ndarray) -> np.ndarray:
    match operation.kind:
        case "state" | "input":
            return x if operation.kind == "state" else u
        case "constant":
            return np.asarray(operation.array)
        case "concat":
            return np.concatenate([np.broadcast_to(v, (*x.shape[:-1], v.shape[-1])) for v in a], axis=-1)
        case "linear" | "pick":
            return _move(operation, a[0])
        case name:
            return getattr(np, name)(*a)


def _move(operation: Operation, a: np.ndarray) -> np.ndarray:
    array = np.asarray(operation.array)
    return a @ array.T if operation.kind == "linear" else a[..., array]


def _tangent(
    operation: Operation, value: np.ndarray, a: list[np.ndarray], d: list[np.ndarray], given: dict[str, np.ndarray]
) -> np.ndarray:
    """The change of a value along each direction, one row a direction."""
    match operation.kind:
        case "state" | "input":
            return given[operation.kind]
        case "constant":
            return np.zeros((len(given["state"]), operation.size))
        case "concat":
            return np.concatenate(d, axis=-1)
        case "linear" | "pick":
            return _move(operation, d[0])
        case name if len(a) == 1:
            return SLOPES[name](a[0], value) * d[0]
        case name:
            left, right = PARTIAL[name](*a)
            return left * d[0] + right * d[1]
