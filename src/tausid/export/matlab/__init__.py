"""MATLAB and Octave: functions for f, g, a step and a simulation, and a script that checks them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tausid.data.records import UNIFORM_TOLERANCE
from tausid.export.check import TOLERANCE, make_check
from tausid.export.delays import SLACK
from tausid.export.description import Description
from tausid.export.names import channel_lines, delay_note
from tausid.export.operations import Operation
from tausid.export.templates import fill
from tausid.storage import write_text

HERE = Path(__file__).parent
INFIX = {"add": "+", "subtract": "-", "multiply": ".*", "divide": "./"}
NAMES = {"maximum": "max", "minimum": "min"}


def write_matlab(description: Description, name: str, folder: Path) -> list[Path]:
    """Write the functions, a check and a README."""
    d, stages = description, len(description.stepper.b)
    tableau = [[*row, *[0.0] * (stages - len(row))] for row in d.stepper.a]
    values = {
        "name": name,
        "nx": d.nx,
        "nu": d.nu,
        "channels": "\n".join(f"%   {line}" for line in channel_lines(d)),
        "x0": matrix(d.x0[:, None]),
        "hold": matrix(d.hold[:, None]),
        "a": matrix(tableau),
        "b": matrix([d.stepper.b]),
        "c": matrix([d.stepper.c]),
        "substeps": d.substeps,
        "longest": repr(float(d.longest_step)),
        "split": UNIFORM_TOLERANCE,
        "tolerance": TOLERANCE,
        "delay_note": delay_note(d, f"{name}_simulate delays them; the other functions take them as they act."),
    }
    late = {"delays": matrix([d.delays]), "hold": values["hold"], "slack": number(SLACK * d.ts)}
    values["delay"] = fill(HERE / "delay.m.in", **late) if np.any(d.delays) else ""
    texts = {f"{name}_{part}.m": fill(HERE / f"{part}.m.in", **values) for part in ("step", "simulate", "check")}
    for part, function, result, about in (
        ("f", d.f, "dx", "State derivative per second, dx/dt = f(x, u)"),
        ("g", d.g, "y", "Outputs, y = g(x, u)"),
    ):
        body = "\n".join(_line(i, op) for i, op in enumerate(function.operations[2:], start=2))
        own = {
            "body": body,
            "last": _value(len(function.operations) - 1),
            "part": part,
            "result": result,
            "about": about,
        }
        texts[f"{name}_{part}.m"] = fill(HERE / "function.m.in", **values, **own)
    texts["README.md"] = fill(HERE / "README.md.in", **values)
    check = make_check(d, long_steps=True).write(folder / "check.csv")
    return [check, *(write_text(folder / file, text) for file, text in texts.items())]


def matrix(rows: Iterable[Iterable[float]]) -> str:
    """A matrix, such that every number reads back as the same one."""
    lines = ["".join(f" {number(value)}" for value in row) for row in rows]
    return f"[{'; ...'.join(line if i == 0 else f'{chr(10)}   {line}' for i, line in enumerate(lines))}]"


def number(value: float) -> str:
    """One number."""
    return repr(float(value)) if math.isfinite(value) else f"{'-' if value < 0 else ''}Inf"


def _value(number: int) -> str:
    return {0: "x", 1: "u"}.get(number, f"v{number}")


def _line(i: int, operation: Operation) -> str:
    a = [_value(j) for j in operation.inputs]
    array = np.asarray(operation.array)
    match operation.kind:
        case "constant":
            text = matrix(array[:, None])
        case "linear":
            text = f"{matrix(array)} * {a[0]}"
        case "pick":
            text = f"{a[0]}([{' '.join(str(j + 1) for j in array)}])"
        case "concat":
            text = f"[{'; '.join(a)}]"
        case kind if kind in INFIX:
            text = f"{a[0]} {INFIX[kind]} {a[1]}"
        case kind:
            text = f"{NAMES.get(kind, kind)}({', '.join(a)})"
    return f"v{i} = {text};"
