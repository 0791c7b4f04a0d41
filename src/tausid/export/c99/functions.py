"""A function's operations as loops in C, and its derivative along a direction beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tausid.export.operations import Function, Operation

VALUES = {"add": "{a} + {b}", "subtract": "{a} - {b}", "multiply": "{a} * {b}", "divide": "{a} / {b}"}
VALUES |= {"maximum": "MAXIMUM({a}, {b})", "minimum": "MINIMUM({a}, {b})"}
VALUES |= {name: f"FUNCTION({name}, {{a}})" for name in ("tanh", "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos")}
VALUES["abs"] = "FUNCTION(fabs, {a})"
# What a change da of the argument a does to the value v.
SLOPES = {
    "tanh": "(R(1) - {v} * {v}) * {da}",
    "exp": "{v} * {da}",
    "expm1": "({v} + R(1)) * {da}",
    "log": "{da} / {a}",
    "log1p": "{da} / (R(1) + {a})",
    "sqrt": "R(0.5) * {da} / {v}",
    "abs": "({a} < 0 ? -{da} : {da})",
    "sin": "FUNCTION(cos, {a}) * {da}",
    "cos": "-FUNCTION(sin, {a}) * {da}",
    "maximum": "({a} < {b} ? {db} : {da})",
    "minimum": "({a} > {b} ? {db} : {da})",
}
# The same for two arguments, as terms of which those with a constant argument fall away.
TERMS = {
    "add": ("{da}", "{db}"),
    "subtract": ("{da}", "-{db}"),
    "multiply": ("{b} * {da}", "{a} * {db}"),
    "divide": ("{da} / {b}", "-{v} * {db} / {b}"),
}


def numbers(values: Iterable[float], *, plain: bool = False) -> str:
    """Numbers of an array in C, such that they read back as the same ones; cast to `real` unless plain."""
    return ", ".join(literal(value) if not plain else _plain(value) for value in values)


def literal(value: float) -> str:
    """One number as a `real`."""
    return f"R({_plain(value)})"


def _plain(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else f"{'-' if value < 0 else ''}INFINITY"


def function_source(function: Function, prefix: str, name: str) -> str:
    """Tables, `name(x, u, result)` and `name_along(x, u, vx, vu, d)`."""
    lines = [_table(f"{prefix}{i}", op) for i, op in enumerate(function.operations) if op.array is not None]
    for along in (False, True):
        lines += _body(function, prefix, name, along)
    return "\n".join(line for line in lines if line) + "\n"


def _table(name: str, op: Operation) -> str:
    array = np.asarray(op.array)
    if op.kind == "constant":
        return "" if op.size == 1 else f"static const real {name}[] = {{{numbers(array)}}};"
    if op.kind == "pick":
        return f"static const int {name}[] = {{{', '.join(map(str, array))}}};"
    rows = ",\n".join(f"  {{{numbers(row)}}}" for row in array)
    return f"static const real {name}[{array.shape[0]}][{array.shape[1]}] = {{\n{rows}}};"


def _body(function: Function, prefix: str, name: str, along: bool) -> list[str]:
    result = len(function.operations) - 1
    given = ("x", "u", "vx", "vu") if along else ("x", "u")
    out, suffix = ("d", "_along") if along else ("result", "")
    last = _entry(function, prefix, result)
    if along:
        last = f"{_changed(result)}[i]" if function.varying[result] else "R(0)"
    lines = [_loop(function.size, f"{out}[i] = {last};"), "}", ""]
    for i in range(result, -1, -1):  # from the end, so that values which no change depends on can be left out
        if along and function.varying[i]:
            lines = [*_change(function, prefix, i), *lines]
        if any(f"v{i}[" in line for line in lines):
            lines = [*_value(function, prefix, i), *lines]
    head = f"void {name}{suffix}({', '.join(f'const real *{a}' for a in given)}, real *{out}) {{"
    return [head, *(f"  (void){a};" for a in given), *lines]


def _entry(function: Function, prefix: str, number: int, index: str = "i") -> str:
    """Entry `index` of a value; one with one entry counts for all."""
    op = function.operations[number]
    if op.kind == "constant" and op.size == 1:
        return literal(float(np.asarray(op.array)[0]))
    index = "0" if op.size == 1 else index
    return f"{_array(number, op, prefix)}[{index}]"


def _array(number: int, op: Operation, prefix: str) -> str:
    return {"state": "x", "input": "u", "constant": f"{prefix}{number}"}.get(op.kind, f"v{number}")


def _changed(number: int) -> str:
    return {0: "vx", 1: "vu"}.get(number, f"d{number}")


def _value(function: Function, prefix: str, i: int) -> list[str]:
    op = function.operations[i]
    if op.kind in ("state", "input", "constant"):
        return []
    arrays = [_array(j, function.operations[j], prefix) for j in op.inputs]
    lines = [f"  real v{i}[{op.size}];"]
    if op.kind in ("linear", "concat", "pick"):
        return lines + _moved(function, prefix, f"v{i}", i, op, arrays)
    entries = dict(zip("ab", (_entry(function, prefix, j) for j in op.inputs), strict=False))
    return [*lines, _loop(op.size, f"v{i}[i] = {VALUES[op.kind].format(**entries)};")]


def _change(function: Function, prefix: str, i: int) -> list[str]:
    op = function.operations[i]
    if op.kind in ("state", "input"):
        return []
    changes = [_changed(j) if function.varying[j] else "" for j in op.inputs]
    lines = [f"  real d{i}[{op.size}];"]
    if op.kind in ("linear", "concat", "pick"):
        return lines + _moved(function, prefix, f"d{i}", i, op, changes)
    known = dict(zip("ab", (_entry(function, prefix, j) for j in op.inputs), strict=False)) | {"v": f"v{i}[i]"}
    for key, j, change in zip(("da", "db"), op.inputs, changes, strict=False):
        known[key] = f"{change}[{'0' if function.operations[j].size == 1 else 'i'}]" if change else "R(0)"
    terms = [term for term, change in zip(TERMS.get(op.kind, ()), changes, strict=False) if change]
    expression = (" + ".join(terms) if terms else SLOPES[op.kind]).format(**known)
    return [*lines, _loop(op.size, f"d{i}[i] = {expression};")]


def _moved(function: Function, prefix: str, target: str, i: int, op: Operation, arrays: list[str]) -> list[str]:
    """A linear map, a choice or a joining of entries: the same for values and for their changes."""
    if op.kind == "pick":
        return [_loop(op.size, f"{target}[i] = {arrays[0]}[{prefix}{i}[i]];")]
    if op.kind == "linear":
        columns = np.asarray(op.array).shape[1]
        inner = f"for (int j = 0; j < {columns}; ++j) sum += {prefix}{i}[i][j] * {arrays[0]}[j];"
        return [_loop(op.size, f"{{ real sum = R(0); {inner} {target}[i] = sum; }}")]
    lines, start = [], 0
    for j, array in zip(op.inputs, arrays, strict=True):
        size = function.operations[j].size
        source = f"{array}[i]" if array else "R(0)"
        if function.operations[j].kind == "constant" and size == 1 and target.startswith("v"):
            source = _entry(function, prefix, j)
        lines.append(_loop(size, f"{target}[{start} + i] = {source};"))
        start += size
    return lines


def _loop(count: int, statement: str) -> str:
    return f"  for (int i = 0; i < {count}; ++i) {statement}"
