"""C99: one header, one source, and a program that checks them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tausid.data.records import UNIFORM_TOLERANCE
from tausid.export import interpreter
from tausid.export.c99.functions import functions_source, numbers
from tausid.export.check import TOLERANCE, TOLERANCE_FLOAT, make_check
from tausid.export.derivatives import along
from tausid.export.description import Description
from tausid.export.names import identifiers, mapping
from tausid.export.templates import fill
from tausid.storage import write_text

HERE = Path(__file__).parent


def write_c99(description: Description, name: str, folder: Path) -> list[Path]:
    """Write the model, its check and a README."""
    texts = {**sources(description, name), f"{name}_check.c": _check(description, name)}
    texts["README.md"] = fill(HERE / "README.md.in", name=name)
    return [write_text(folder / file, text) for file, text in texts.items()]


def sources(description: Description, name: str) -> dict[str, str]:
    """Header and source by file name."""
    return {f"{name}.h": _header(description, name), f"{name}.c": _source(description, name)}


def _header(d: Description, name: str) -> str:
    inputs = identifiers(f"u_{channel}" for channel in d.input_names)
    outputs = identifiers(f"y_{channel}" for channel in d.output_names)
    lines = [*mapping(d.input_names, d.input_units, inputs), *mapping(d.output_names, d.output_units, outputs)]
    first = [plain for plain, slope in zip(inputs, d.hold, strict=True) if slope]
    return fill(
        HERE / "model.h.in",
        name=name,
        nx=d.nx,
        nu=d.nu,
        ny=d.ny,
        channels="\n".join(f" *   {line}" for line in lines),
        indices=", ".join(f"{name}_{plain} = {i}" for part in (inputs, outputs) for i, plain in enumerate(part)),
        hold=f"First-order hold: {', '.join(first)}." if first else "All are held, and u_next may be NULL.",
    )


def _source(d: Description, name: str) -> str:
    tableau = np.zeros((len(d.stepper.b),) * 2)
    for i, row in enumerate(d.stepper.a):
        tableau[i, :i] = row
    functions = {"f": d.f, "g": d.g, "f_along": along(d.f), "g_along": along(d.g)}
    return fill(
        HERE / "model.c.in",
        name=name,
        stages=len(tableau),
        room_u=max(d.nu, 1),
        rows=max(d.nx, d.ny),
        functions=functions_source(functions),
        x0=numbers(d.x0),
        longest=repr(float(d.longest_step)),
        tolerance=UNIFORM_TOLERANCE,
        substeps=d.substeps,
        a=", ".join(f"{{{numbers(row)}}}" for row in tableau),
        b=numbers(d.stepper.b),
        c=numbers(d.stepper.c),
        slopes=numbers(d.hold if d.nu else [0.0]),
    )


def _check(d: Description, name: str) -> str:
    check = make_check(d, long_steps=True)
    u = check.u if d.nu else np.zeros((len(check.t), 1))
    A, B = interpreter.jacobian(d.f, check.x[-1], check.u[-1])
    C, D = interpreter.jacobian(d.g, check.x[-1], check.u[-1])
    arrays = {"dt": np.diff(check.t), "A": A, "B": B, "C": C, "D": D}
    rows = {"u": u, "x": check.x, "y": check.y}
    return fill(
        HERE / "check.c.in",
        name=name,
        samples=len(check.t),
        room_u=max(d.nu, 1),
        tolerance=TOLERANCE,
        tolerance_float=TOLERANCE_FLOAT,
        **{key: numbers(a.ravel() if a.size else [0.0], plain=True) for key, a in arrays.items()},
        **{key: ",\n".join(f"{{{numbers(row, plain=True)}}}" for row in a) for key, a in rows.items()},
    )
