"""A short simulation by the interpreter that goes with every export, so that it can be verified where it is used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tausid.errors import DivergenceError
from tausid.export import interpreter
from tausid.export.description import Description
from tausid.export.names import delay_note
from tausid.export.templates import fill
from tausid.storage import write_table, write_text

HERE = Path(__file__).parent
SAMPLES = 60
# Largest error of a target, over the largest value of its channel.
TOLERANCE, TOLERANCE_FLOAT = 1e-12, 1e-5


@dataclass(frozen=True, eq=False)
class Check:
    """Time stamps, inputs, states and outputs; shapes (N,), (N, nu), (N, nx), (N, ny)."""

    t: np.ndarray
    u: np.ndarray
    x: np.ndarray
    y: np.ndarray

    def write(self, path: Path) -> Path:
        """Write it as CSV, with the columns t, u1.., x1.., y1..; every number reads back as the same one."""
        parts = {"u": self.u, "x": self.x, "y": self.y}
        header = ["t", *(f"{key}{i + 1}" for key, part in parts.items() for i in range(part.shape[1]))]
        return write_table(path, header, np.column_stack([self.t, *parts.values()]).tolist())


def write_check(folder: Path, templates: Path, description: Description, check: Check, **values: Any) -> list[Path]:
    """Write the table of a check, the program in Python that compares with it, and the README of a target."""
    values |= {"nx": description.nx, "nu": description.nu, "longest": description.longest_step}
    values |= {"tolerance": TOLERANCE, "tolerance_float": TOLERANCE_FLOAT}
    values["table"] = fill(HERE / "table.py.in", **values)
    texts = {f"{values['name']}_check.py": "check.py.in", "README.md": "README.md.in"}
    written = [write_text(folder / file, fill(templates / source, **values)) for file, source in texts.items()]
    return [check.write(folder / "check.csv"), *written]


def write_functions_check(folder: Path, templates: Path, description: Description, **values: Any) -> list[Path]:
    """The same for functions that take inputs as they act, and steps that are not integrated in parts."""
    note = delay_note(description, "The functions take each as it was so long before.")
    check = make_check(description, long_steps=False, delayed=False)
    return write_check(folder, templates, description, check, delays=note, **values)


def make_check(description: Description, *, long_steps: bool, delayed: bool = True) -> Check:
    """A response to random steps within a deviation of the inputs' means, on an uneven clock.

    `long_steps` are some that are integrated in parts. Unless `delayed`, inputs are those that act. A
    simulation that diverges ends where it does.
    """
    if not delayed:
        description = replace(description, delays=np.zeros(description.nu))
    rng = np.random.default_rng(0)
    steps = description.ts * rng.uniform(0.5, 1.0, SAMPLES)
    if long_steps:
        steps[::12] = 2.2 * description.longest_step
    t = np.concatenate([[0.0], np.cumsum(steps)])
    levels = np.repeat(rng.uniform(-1.0, 1.0, (SAMPLES // 4 + 1, description.nu)), 4, axis=0)[: SAMPLES + 1]
    u = description.u_mean + description.u_std * levels
    with np.errstate(all="ignore"):
        x, y = interpreter.simulate(description, description.x0, u, t)
    finite = np.isfinite(np.column_stack([x, y])).all(axis=1)
    count = len(t) if finite.all() else int(np.argmin(finite))
    if count < 2:
        raise DivergenceError(
            "the model to be exported must simulate one step from its initial state; it diverges. Use more substeps."
        )
    return Check(t[:count], u[:count], x[:count], y[:count])
