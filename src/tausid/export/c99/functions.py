"""Functions in C: each operation a loop, each constant array a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from tausid.export.operations import Function

VALUES = {"add": "{a} + {b}", "subtract": "{a} - {b}", "multiply": "{a} * {b}", "divide": "{a} / {b}"}
VALUES |= {"maximum": "MAXIMUM({a}, {b})", "minimum": "MINIMUM({a}, {b})"}
VALUES |= {name: f"FUNCTION({name}, {{a}})" for name in ("tanh", "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos")}
VALUES["abs"] = "FUNCTION(fabs, {a})"
VALUES["less"] = "({a} < {b} ? R(1) : R(0))"

Table = tuple[str, tuple[int, ...], bytes]  # kind of operation, shape, content: equal ones are one


def numbers(values: Iterable[float], *, plain: bool = False) -> str:
    """Numbers of an array in C, such that they read back as the same ones; cast to `real` unless plain."""
    return ", ".join(_plain(value) if plain else f"R({_plain(value)})" for value in values)


def _plain(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else f"{'-' if value < 0 else ''}INFINITY"


def functions_source(functions: Mapping[str, Function]) -> str:
    """Static functions `name(x, u, result)`, and the tables of constants that they share."""
    tables: dict[Table, str] = {}
    bodies = [_function(name, function, tables) for name, function in functions.items()]
    return "\n".join([*(_table(*table) for table in tables.items()), "", *bodies])


def _table(key: Table, name: str) -> str:
    kind, shape, content = key
    if kind == "pick":
        return f"static const int {name}[] = {{{', '.join(map(str, np.frombuffer(content, int)))}}};"
    array = np.frombuffer(content).reshape(shape)
    if kind == "constant":
        return f"static const real {name}[] = {{{numbers(array)}}};"
    rows = ",\n".join(f"  {{{numbers(row)}}}" for row in array)
    return f"static const real {name}[{shape[0]}][{shape[1]}] = {{\n{rows}}};"


def _function(name: str, function: Function, tables: dict[Table, str]) -> str:
    arrays, entries, lines = list[str](), list[str](), list[str]()  # arrays: of values, or of constants
    for i, op in enumerate(function.operations):
        array, table = {"state": "x", "input": "u"}.get(op.kind, f"v{i}"), ""
        if op.array is not None and not (op.kind == "constant" and op.size == 1):
            key = (op.kind, op.array.shape, np.ascontiguousarray(op.array).tobytes())
            table = tables.setdefault(key, f"k{len(tables)}")
        arrays.append(table if op.kind == "constant" else array)
        entries.append(f"{arrays[i]}[{'0' if op.size == 1 else 'i'}]")
        if op.kind == "constant":
            entries[i] = entries[i] if table else f"R({_plain(float(np.asarray(op.array)[0]))})"
        elif op.kind not in ("state", "input"):
            lines += [f"  real v{i}[{op.size}];", *_loops(function, i, table, arrays, entries)]
    head = [f"static void {name}(const real *x, const real *u, real *result) {{", "  (void)x;", "  (void)u;"]
    return "\n".join([*head, *lines, _loop(function.size, f"result[i] = {entries[-1]};"), "}", ""])


def _loops(function: Function, i: int, table: str, arrays: list[str], entries: list[str]) -> list[str]:
    """The loops that compute value i."""
    op = function.operations[i]
    match op.kind:
        case "pick":
            return [_loop(op.size, f"v{i}[i] = {arrays[op.inputs[0]]}[{table}[i]];")]
        case "linear":
            columns = function.operations[op.inputs[0]].size
            inner = f"for (int j = 0; j < {columns}; ++j) sum += {table}[i][j] * {arrays[op.inputs[0]]}[j];"
            return [_loop(op.size, f"{{ real sum = R(0); {inner} v{i}[i] = sum; }}")]
        case "concat":
            sizes = [function.operations[j].size for j in op.inputs]
            starts = np.cumsum([0, *sizes])
            rows = zip(sizes, starts, op.inputs, strict=False)
            return [_loop(n, f"v{i}[{at} + i] = {entries[j]};") for n, at, j in rows]
        case kind:
            operands = dict(zip("ab", (entries[j] for j in op.inputs), strict=False))
            return [_loop(op.size, f"v{i}[i] = {VALUES[kind].format(**operands)};")]


def _loop(count: int, statement: str) -> str:
    return f"  for (int i = 0; i < {count}; ++i) {statement}"
