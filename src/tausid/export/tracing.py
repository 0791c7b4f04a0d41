"""Known equations as operations: JAX records what a plant's functions compute, and each step finds its counterpart."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from tausid.errors import ConfigError
from tausid.export.operations import ACTIVATIONS, UNARY, Value, concat
from tausid.model.physics import KnownPart

# JAX's names where a description has others.
BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum"}
UNCHANGED = ("convert_element_type", "broadcast_in_dim", "squeeze", "reshape", "stop_gradient", "copy")


def trace(part: KnownPart, which: str, x: Value, u: Value) -> Value:
    """A plant's `derivative` or `output` of states and inputs in its own units."""
    fields = {field.name: getattr(part.plant, field.name) for field in dataclasses.fields(part.plant)}  # type: ignore[arg-type]
    p = SimpleNamespace(**fields | {name: fitted.value for name, fitted in part.parameters.items()})

    def equations(x: Sequence[Any], u: Sequence[Any]) -> list[Any]:
        return [jnp.asarray(value, float) for value in getattr(part.plant, which)(x, u, p)]

    with jax.enable_x64(True):
        recorded = jax.make_jaxpr(equations)((0.5,) * x.size, (0.5,) * u.size)
    given = [v.pick([i]) for v in (x, u) for i in range(v.size)]
    try:
        return concat(_replay(recorded.jaxpr, [x.constant(value) for value in recorded.consts], given))
    except _NoCounterpart as missing:
        raise ConfigError(
            f"`{type(part.plant).__name__}.{which}` must be written with elementwise functions that every target has, "
            f"to be exported; it uses {missing}. Write it with + - * /, whole powers, minimum, maximum, clip, "
            f"{', '.join(UNARY)}."
        ) from None


class _NoCounterpart(Exception):
    pass


def _replay(jaxpr: Any, constants: Sequence[Value], given: Sequence[Value]) -> list[Value]:
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *given), strict=True))
    anchor = given[0]

    def value(variable: Any) -> Value:
        return anchor.constant(float(variable.val)) if hasattr(variable, "val") else known[variable]

    for equation in jaxpr.eqns:
        results = _results(equation, [value(variable) for variable in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [value(variable) for variable in jaxpr.outvars]


def _results(equation: Any, a: list[Value]) -> list[Value]:
    name, params = equation.primitive.name, equation.params
    inner = params.get("jaxpr") or params.get("call_jaxpr")
    if inner is not None and hasattr(inner, "consts"):
        return _replay(inner.jaxpr, [a[0].constant(float(value)) for value in inner.consts], a)
    if any(variable.aval.shape for variable in equation.outvars):
        raise _NoCounterpart(f"arrays ({name})")
    return [_result(name, params, a)]


def _result(name: str, params: dict[str, Any], a: list[Value]) -> Value:
    if name in BINARY:
        return a[0].binary(BINARY[name], a[1])
    if name in UNARY:
        return a[0].unary(name)
    if name in UNCHANGED:
        return a[0]
    match name:
        case "neg":
            return a[0] * -1.0
        case "square":
            return a[0] * a[0]
        case "logistic":
            return ACTIVATIONS["sigmoid"](a[0])
        case "clamp":
            return a[1].binary("maximum", a[0]).binary("minimum", a[2])
        case "integer_pow":
            return _power(a[0], params["y"])
    raise _NoCounterpart(name)


def _power(a: Value, exponent: int) -> Value:
    product = a.constant(1.0) if exponent == 0 else a
    for _ in range(abs(exponent) - 1):
        product = product * a
    return a.constant(1.0) / product if exponent < 0 else product
