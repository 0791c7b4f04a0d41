"""What a description computes, by numpy: the reference of every target. States and inputs may have leading axes."""

from __future__ import annotations

import numpy as np

from tausid.data.records import UNIFORM_TOLERANCE
from tausid.engine.steppers import take_step
from tausid.export.delays import acting_inputs
from tausid.export.derivatives import along
from tausid.export.description import Description
from tausid.export.operations import Function, Operation
from tausid.shapes import Float


def evaluate(function: Function, x: Float[np.ndarray, "*B nx"], u: Float[np.ndarray, "*B nu"]) -> np.ndarray:
    """The value of a function, shape (*B, size)."""
    values: list[np.ndarray] = []
    for operation in function.operations:
        values.append(_value(operation, [values[i] for i in operation.inputs], x, u))
    return np.broadcast_to(values[-1], (*x.shape[:-1], function.size))


def jacobian(
    function: Function, x: Float[np.ndarray, "nx"], u: Float[np.ndarray, "nu"]
) -> tuple[Float[np.ndarray, "n nx"], Float[np.ndarray, "n nu"]]:
    """The derivatives of a function with respect to x and u; outputs at their limits have none."""
    directions = np.eye(len(x) + len(u))
    count = len(directions)
    given = np.concatenate([np.broadcast_to(u, (count, len(u))), directions], axis=1)
    whole = evaluate(along(function), np.broadcast_to(x, (count, len(x))), given).T
    return whole[:, : len(x)], whole[:, len(x) :]


def step(
    description: Description,
    x: Float[np.ndarray, "*B nx"],
    u: Float[np.ndarray, "*B nu"],
    u_next: Float[np.ndarray, "*B nu"],
    dt: float,
) -> Float[np.ndarray, "*B nx"]:
    """The state after `dt` seconds with inputs as they act; `u_next`, those then, counts with first-order hold."""
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
    """States and outputs at the time stamps; inputs are given, and act after their delays."""
    u = acting_inputs(description, u, t)
    x = [np.asarray(x0, float)]
    for k, dt in enumerate(np.diff(t)):
        x.append(step(description, x[-1], u[k], u[k + 1], float(dt)))
    states = np.stack(x)
    return states, evaluate(description.g, states, u)


def _value(operation: Operation, a: list[np.ndarray], x: np.ndarray, u: np.ndarray) -> np.ndarray:
    match operation.kind:
        case "state" | "input":
            return x if operation.kind == "state" else u
        case "constant":
            return np.asarray(operation.array)
        case "concat":
            return np.concatenate([np.broadcast_to(v, (*x.shape[:-1], v.shape[-1])) for v in a], axis=-1)
        case "linear":
            return a[0] @ np.asarray(operation.array).T
        case "pick":
            return a[0][..., np.asarray(operation.array)]
        case "less":
            return np.where(a[0] < a[1], 1.0, 0.0)
        case name:
            return getattr(np, name)(*a)
