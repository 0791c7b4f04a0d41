"""One measured experiment: inputs, outputs and time, in physical units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tausid.data.records._convert import (
    as_columns,
    as_floats,
    as_private,
    make_clock,
    numbered,
    units_of,
    unnamed,
)
from tausid.data.records._rules import (
    check_inputs,
    check_labels,
    check_outputs,
    check_samples,
    check_size,
    check_time,
    check_unique,
)
from tausid.display import html_table
from tausid.shapes import ArrayLike, Float

# Time steps that differ by less than this share of their median count as one clock.
UNIFORM_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Record:
    """One measured experiment: `u (N, nu)`, `y (N, ny)`, `t (N,)`, time along the first axis.

    NaN in `y` is a missing sample; NaN in `u` is an error. The arrays are private and read-only: copies, but of those
    of another record, which its parts share.
    Use `Record.from_arrays` for one-dimensional arrays or a sampling time instead of time stamps.

    Args:
        u: inputs, shape (N, nu), physical units.
        y: outputs, shape (N, ny), physical units.
        t: time stamps in seconds, shape (N,), strictly increasing.
        input_names: one name per input channel.
        output_names: one name per output channel.
        input_units: one unit per input channel, `""` where unknown.
        output_units: one unit per output channel, `""` where unknown.
        name: what to call the record in tables and messages.
        history: what was done to the measured samples, one description per step, the first step first.

    Raises:
        DataError: a shape, a length, a name, a unit, a NaN or the order of time breaks its rule.
    """

    u: Float[np.ndarray, "N nu"]
    y: Float[np.ndarray, "N ny"]
    t: Float[np.ndarray, "N"]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_units: tuple[str, ...]
    output_units: tuple[str, ...]
    name: str = "record"
    history: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("u", "y", "t"):
            object.__setattr__(self, field, as_private(as_floats(getattr(self, field), field)))
        check_samples(self.u, self.y, self.t, self.name)
        check_labels("input", self.nu, names=self.input_names, units=self.input_units)
        check_labels("output", self.ny, names=self.output_names, units=self.output_units)
        check_unique((*self.input_names, *self.output_names))
        check_time(self.t, self.name)
        check_inputs(self.u, self.input_names, self.name)
        check_size(self.u, self.input_names, self.name)
        check_size(self.y, self.output_names, self.name)
        check_outputs(self.y, self.output_names, self.name)

    @classmethod
    def from_arrays(
        cls,
        u: ArrayLike,
        y: ArrayLike | None,
        *,
        ts: float | None = None,
        t: ArrayLike | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        units: Mapping[str, str] | None = None,
        name: str = "record",
    ) -> Record:
        """Make a record from arrays; a one-dimensional array is one channel.

        Args:
            u: inputs, shape (N,) or (N, nu).
            y: outputs, shape (N,) or (N, ny); None for inputs alone, which can be simulated and nothing else.
            ts: sampling time in seconds; the record then starts at t = 0.
            t: time stamps in seconds, instead of `ts`.
            input_names: names of the inputs; by default `u`, or `u1`, `u2`, ...
            output_names: names of the outputs; by default `y`, or `y1`, `y2`, ...
            units: unit of each channel by its name; either all channels or none.
            name: what to call the record.

        Raises:
            DataError: the arrays, the clock, the names or the units break a rule.

        Example:
            >>> Record.from_arrays([0.0, 1.0, 1.0], [0.0, 0.1, 0.3], ts=4.0).t
            array([0., 4., 8.])
        """
        inputs = as_columns(u, "u")
        outputs = np.zeros((len(inputs), 0)) if y is None else as_columns(y, "y")
        names_u = tuple(input_names) if input_names is not None else numbered("u", inputs.shape[1])
        names_y = tuple(output_names) if output_names is not None else numbered("y", outputs.shape[1])
        units_u, units_y = units_of(names_u, names_y, units)
        time = make_clock(len(outputs), ts=ts, t=t)
        return cls(inputs, outputs, time, names_u, names_y, units_u, units_y, name)

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        channels = f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}"
        return f"Record({self.name!r}: {len(self)} samples, Ts = {self.ts:g} s, {channels})"

    def _repr_html_(self) -> str:
        rows = [
            (kind, name, unit, np.nanmin(column), np.nanmax(column))
            for kind, names, units, values in (
                ("input", self.input_names, self.input_units, self.u),
                ("output", self.output_names, self.output_units, self.y),
            )
            for name, unit, column in zip(names, units, values.T, strict=True)
        ]
        title = f"Record {self.name}: {len(self)} samples, Ts = {self.ts:g} s"
        return html_table(title, rows, header=("", "channel", "unit", "smallest", "largest"))

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return self.u.shape[1]

    @property
    def ny(self) -> int:
        """Number of outputs."""
        return self.y.shape[1]

    @cached_property
    def ts(self) -> float:
        """Sampling time in seconds: the median step of the clock."""
        return float(np.median(np.diff(self.t)))

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all time steps are equal to within a thousandth."""
        steps = np.diff(self.t)
        return bool(max(steps.max() - self.ts, self.ts - steps.min()) <= UNIFORM_TOLERANCE * self.ts)

    @property
    def is_unnamed(self) -> bool:
        """Whether its channels have the names that they get where none are given."""
        return (*self.input_names, *self.output_names) == unnamed(self.nu, self.ny)

    def renamed(self, *, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Record:
        """The record with other names of its channels, such as those that a model knows them by.

        Args:
            inputs: one name per input; by default as they are.
            outputs: one name per output; by default as they are.
        """
        names_u = self.input_names if inputs is None else tuple(inputs)
        return replace(self, input_names=names_u, output_names=self.output_names if outputs is None else tuple(outputs))

    def part(self, start: int, stop: int, *, name: str | None = None) -> Record:
        """Samples `start` to `stop - 1` as a record of their own, time stamps kept; a view, not a copy.

        Args:
            start: first sample.
            stop: sample after the last one.
            name: what to call the part; by default the record's name and the range.
        """
        label = name if name is not None else f"{self.name}[{start}:{stop}]"
        return replace(self, u=self.u[start:stop], y=self.y[start:stop], t=self.t[start:stop], name=label)


Records: TypeAlias = Record | Sequence[Record]
