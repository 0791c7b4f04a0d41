"""C99: one header, one source, and a program that checks them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.records import UNIFORM_TOLERANCE
from tausid.export import interpreter
from tausid.export.c99.functions import functions_source, numbers
from tausid.export.check import TOLERANCE, TOLERANCE_FLOAT, make_check
from tausid.export.delays import SLACK, acting_inputs
from tausid.export.derivatives import along
from tausid.export.description import Description
from tausid.export.names import identifiers, mapping, quoted
from tausid.export.templates import fill
from tausid.model.model import describe_delays
from tausid.storage import write_text

HERE = Path(__file__).parent
# The loop of the README with delays.
DELAYED_LOOP = """
Inputs act late: {delays}. All functions take them as they act; past ones lie in a ring of {name}_HISTORY samples:

    {name}_past past;
    {name}_forget(&past);
    {name}_delayed(&past, u, acting);
    for (;;) {{
      {name}_output(x, acting, y);
      {name}_remember(&past, u, dt);
      if ({name}_delayed(&past, u_next, acting_next)) {{ /* more samples within a delay than {name}_HISTORY */ }}
      {name}_step(x, acting, acting_next, dt);  /* then u = u_next, acting = acting_next */
    }}
"""
# What an observer has more where inputs are delayed: in its struct, at its start, at each sample, and a status.
PAST = "  {name}_real u[{room}]; /* given at the last sample */\n  {name}_past past;\n"
FORGET = "  {name}_forget(&o->past);\n"
NOT_DELAYED = "  for (int i = 0; i < NU; ++i) acting[i] = u[i];\n"
DELAYED = """  if (o->started) {name}_remember(&o->past, o->u, dt);
  if ({name}_delayed(&o->past, u, acting)) status = 3;
  for (int i = 0; i < NU; ++i) o->u[i] = u[i];
"""
LOST = ";\n * 3 where {name}_HISTORY is too small for the delays"


def write_c99(description: Description, name: str, folder: Path) -> list[Path]:
    """Write the model, its check and a README."""
    texts = {**sources(description, name), f"{name}_check.c": _check(description, name)}
    late = describe_delays(description.delays.tolist(), description.input_names)
    delays = DELAYED_LOOP.format(delays=quoted(late), name=name) if late else ""
    texts["README.md"] = fill(HERE / "README.md.in", name=name, delays=delays)
    return [write_text(folder / file, text) for file, text in texts.items()]


def sources(description: Description, name: str, *, shortest_step: float = 0.5) -> dict[str, str]:
    """Header and source by file name; past inputs have room for steps of that share of the sampling time."""
    return {f"{name}.h": _header(description, name, shortest_step), f"{name}.c": _source(description, name)}


def _header(d: Description, name: str, shortest_step: float) -> str:
    inputs = identifiers(f"u_{channel}" for channel in d.input_names)
    outputs = identifiers(f"y_{channel}" for channel in d.output_names)
    lines = mapping(d.input_names, d.input_units, inputs, d.delays)
    lines += mapping(d.output_names, d.output_units, outputs)
    first = [plain for plain, slope in zip(inputs, d.hold, strict=True) if slope]
    room = math.ceil(np.max(d.delays, initial=0.0) / (shortest_step * d.ts)) + 2
    own = {"name": name, "room_u": max(d.nu, 1)}
    return fill(
        HERE / "model.h.in",
        delays=_if_delayed(d, "delays.h.in", **own, room=room),
        observer=fill(HERE / "observer.h.in", **own, past=_late(d, PAST, name), lost=_late(d, LOST, name)),
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
    slopes, slack = numbers(d.hold if d.nu else [0.0]), np.where(d.hold > 0, 0.0, SLACK * d.ts)
    late = {"delays": numbers(d.delays), "slack": numbers(slack), "slopes": slopes}
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
        slopes=slopes,
        delays=_if_delayed(d, "delays.c.in", name=name, **late),
        observer=fill(
            HERE / "observer.c.in",
            name=name,
            forget=_late(d, FORGET, name),
            delayed=_late(d, DELAYED, name) or NOT_DELAYED,
        ),
    )


def _check(d: Description, name: str) -> str:
    check = make_check(d, long_steps=True)
    u = check.u if d.nu else np.zeros((len(check.t), 1))
    acting = acting_inputs(d, check.u, check.t)[-1]
    A, B = interpreter.jacobian(d.f, check.x[-1], acting)
    C, D = interpreter.jacobian(d.g, check.x[-1], acting)
    arrays = {"dt": np.diff(check.t), "A": A, "B": B, "C": C, "D": D}
    rows = {"u": u, "x": check.x, "y": check.y}
    return fill(
        HERE / "check.c.in",
        name=name,
        samples=len(check.t),
        room_u=max(d.nu, 1),
        tolerance=TOLERANCE,
        tolerance_float=TOLERANCE_FLOAT,
        delays=_if_delayed(d, "delays_check.c.in", name=name),
        **{key: numbers(a.ravel() if a.size else [0.0], plain=True) for key, a in arrays.items()},
        **{key: ",\n".join(f"{{{numbers(row, plain=True)}}}" for row in a) for key, a in rows.items()},
    )


def _late(d: Description, text: str, name: str) -> str:
    """The text for a model with delays; empty for others."""
    return text.format(name=name, room=max(d.nu, 1)) if np.any(d.delays) else ""


def _if_delayed(d: Description, template: str, **values: Any) -> str:
    return fill(HERE / template, **values) if np.any(d.delays) else ""
