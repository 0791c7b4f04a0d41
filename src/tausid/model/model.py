"""A state-space model with all that it takes to use it on records in physical units."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tausid.checks import check_choice
from tausid.data.clocks import delay_inputs, held_between, samples_within, split_steps
from tausid.data.records import Record, unnamed
from tausid.data.scaling import Scaling
from tausid.display import html_table
from tausid.engine.choice import Engine
from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import FixedStep, Integrator
from tausid.errors import ConfigError, DataError, DivergenceError
from tausid.model import free_run
from tausid.model.arrays import named_arrays, scaling_arrays
from tausid.model.course import Points, Simulation, divergence_message, longest_step, make_integrator, pad
from tausid.model.initial import FreeState
from tausid.model.initial_states import OutputsAtRest, StateFinder
from tausid.model.physics import KnownPart, describe_physics
from tausid.model.state_space import StateSpace
from tausid.model.structure import Integration, Structure, as_plain
from tausid.shapes import ArrayLike
from tausid.storage import write_arrays

# Where a simulation may begin; `Model.simulate` says what each means.
InitialValue: TypeAlias = "ArrayLike | Mapping[str, float] | Record | str | None"


def describe_delays(delays: Sequence[float], names: Sequence[str]) -> str:
    """Delays in words: `u by 1.5 s`."""
    return ", ".join(f"{name} by {delay:g} s" for name, delay in zip(names, delays, strict=True) if delay)


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """An identified model: a state-space model with the scaling, clock and integration it was trained with.

    Args:
        state_space: the model in normalized units.
        scaling: physical to normalized units.
        structure: what it is made of.
        integration: how it is integrated.
        ts: sampling time of the training data in seconds, which the encoder's samples must have.
        input_names: one name per input.
        output_names: one name per output.
        input_units: one unit per input.
        output_units: one unit per output.
        provenance: where it came from: versions, data, status; plain JSON values.
        past_span: shortest and longest time in seconds that the encoder's samples spanned in training, for one that
            sees time stamps; None on one clock.
        delays: seconds after which each input acts; empty for none. A simulation begins where they are known.
    """

    state_space: StateSpace
    scaling: Scaling
    structure: Structure
    integration: Integration
    ts: float
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_units: tuple[str, ...]
    output_units: tuple[str, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    past_span: tuple[float, float] | None = None
    delays: tuple[float, ...] = ()

    def __repr__(self) -> str:
        channels = f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}"
        return f"Model({channels}, {self.state_space.nx} states, tau = {self.tau} s, Ts/tau = {self.ts_over_tau:.4g})"

    def _repr_html_(self) -> str:
        tau = ", ".join(f"{value:.4g}" for value in np.atleast_1d(self.tau))
        rows = [
            ("inputs", ", ".join(self.input_names) or "none"),
            ("outputs", ", ".join(self.output_names)),
            ("states", self.state_space.nx),
            ("tau", f"{tau} s ({self.state_space.tau.source}), Ts/tau = {self.ts_over_tau:.4g}"),
            ("network", self.network),
            *([("delays", describe_delays(self.delays, self.input_names))] if any(self.delays) else []),
            ("integration", f"{self.integration.stepper}, Ts = {self.ts:g} s"),
        ]
        return html_table("Model dx/dt = (1/tau) f(x, u), y = g(x, u)", rows)

    @property
    def tau(self) -> float | tuple[float, ...]:
        """The normalization constant in seconds: one number, or one per state."""
        return self.state_space.tau.now

    @property
    def physics(self) -> KnownPart | None:
        """The known equations with their fitted `parameters`; None for a model without any."""
        return self.state_space.physics

    @property
    def ts_over_tau(self) -> float:
        """The normalized sampling time; with one tau per state, from their mean."""
        return float(self.ts / np.mean(self.tau))

    @cached_property
    def integrator(self) -> FixedStep:
        """The fixed-step integrator, with as many substeps as the sampling time needs."""
        return make_integrator(self.integration, self.ts)

    @property
    def longest_step(self) -> float:
        """The longest step in seconds that is integrated as one; longer ones are split."""
        return longest_step(self.integration, self.ts)

    @property
    def network(self) -> str:
        """Its networks in words."""
        structure = self.structure
        parts = {
            "mlp": f"mlp, hidden {list(structure.hidden)}, {structure.activation}" if structure.hidden else "linear",
            "polynomial": f"polynomial of degree {structure.degree}",
        }
        return " and ".join(text for kind, text in parts.items() if structure.network in (kind, "both"))

    def simulate(
        self,
        record: Record | None = None,
        *,
        u: ArrayLike | None = None,
        t: ArrayLike | None = None,
        dt: float | None = None,
        x0: InitialValue = None,
        integrator: Integrator | None = None,
        throw: bool = True,
    ) -> Simulation:
        """Simulate the record's inputs: measured outputs are used for the initial state and nothing else.

        Args:
            record: inputs, and enough outputs at the start for the initial state; or inputs alone.
            u: inputs alone, in physical units, shape (N,) or (N, nu), instead of a record.
            t: their time stamps in seconds; by default the training data's sampling time.
            dt: seconds between the simulated samples; by default the record's own time stamps.
            x0: where to begin: `encoder`; `refine`, from there by least squares over the next `initial_samples`;
                `rest`, the equilibrium of the first inputs; outputs at rest by name, `{"level": 2.0}`; a state
                (normalized) at the first sample; a record with outputs, one sampling time after whose last sample this
                one begins. None for what the model was trained with, and `rest` where there are no outputs.
            integrator: another integration than in training, such as `Adaptive` to check it.
            throw: whether a simulation that diverges raises; else its status says so.

        Returns:
            The simulation, as long as the record (or as the grid that `dt` gives).

        Raises:
            DataError: other channels than the model's, or too few samples for the initial state.
            DivergenceError: the simulation diverged.
        """
        record = input_record(self, u, t) if record is None else record
        self._check_channels(record)
        how = self._with_own_hold(integrator or self.integrator)
        state = self._initial_value(x0, record)
        record = self._delayed(record, x0 if isinstance(x0, Record) else None)
        begin = self._finder.find(record, state, self._unknown(record))
        points = Points.own(record, begin.start) if dt is None else Points.other(record, begin.start, dt, how.hold)
        t_run, places = split_steps(points.t, self.longest_step)
        u_run = held_between(points.u, places, hold_slopes(how.hold, record.nu))
        x_run, y_run = free_run.run(
            self.state_space,
            begin.state,
            self.scaling.normalize_u(u_run),
            np.diff(t_run),
            how,
            self._engine,
        )
        picked = places[points.picked]
        x = pad(x_run[picked], points.first)
        y = pad(self.scaling.physical_y(y_run)[picked], points.first)
        # The states as well: an output with limits is finite where its state is not.
        finite = np.isfinite(y[points.first :]).all() and np.isfinite(x[points.first :]).all()
        status = "ok" if finite else "diverged"
        if status == "diverged" and throw:
            raise DivergenceError(divergence_message(record, points.t_out[points.first :], y[points.first :]))
        scored_from = record.t[begin.used] if begin.used < len(record) else np.inf
        skipped = int(np.sum(points.t_out < scored_from - points.tolerance))
        return Simulation(points.t_out, y, x, skipped, status, self.output_names, begin.how)

    def _initial_value(self, x0: InitialValue, record: Record) -> ArrayLike | OutputsAtRest | str | None:
        """Where to begin with a record, as the state finder takes it."""
        if isinstance(x0, Record):
            self._check_channels(x0)
            return self.simulate(_followed_by(x0, record.u[:1], record.t[:1])).x[-1]
        if not isinstance(x0, Mapping):
            return x0
        for name in x0:
            check_choice("output", name, self.output_names)
        return OutputsAtRest(np.array([float(x0.get(name, np.nan)) for name in self.output_names]))

    def check(self, record: Record, *, x0: ArrayLike | str | None = None) -> None:
        """Check that the record can be simulated, without doing it.

        Args:
            record: the record.
            x0: as for `simulate`.

        Raises:
            DataError: other channels than the model's, or no initial state from its first samples.
        """
        self._check_channels(record)
        self._finder.check(self._delayed(record), x0, self._unknown(record))

    def estimate_state(self, record: Record, samples: int) -> Float[np.ndarray, "nx"]:
        """Estimate the state at the first sample of a record from its first samples, by least squares.

        Args:
            record: inputs and outputs, on any clock.
            samples: how many samples may be looked at.

        Returns:
            The state (normalized), as `simulate` takes it.

        Raises:
            DataError: other channels than the model's, or too few samples, or none measured.
        """
        self._check_channels(record)
        y = record.y.copy()
        unknown = self._unknown(record)
        if samples <= unknown:
            raise DataError(
                f"`samples` must be more than the {unknown} at the start of {record.name!r} where inputs act that were "
                f"given before it ({describe_delays(self.delays, self.input_names)}); got {samples}. Give more."
            )
        y[:unknown] = np.nan
        return self._finder.estimate(self._delayed(replace(record, y=y)), samples)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to a file: safetensors and JSON, nothing that can run.

        Args:
            path: where to write; usually ends in `.safetensors`.

        Returns:
            The path.

        Raises:
            StorageError: the file cannot be written.
        """
        return write_arrays(path, self.arrays(), kind="model", content=self.content())

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays of the model by name, for a file."""
        return {**named_arrays(self.state_space), **scaling_arrays(self.scaling)}

    def content(self) -> dict[str, Any]:
        """All that is no array, as plain JSON values, for a file."""
        tau = self.state_space.tau
        initial = self.state_space.initial
        return {
            "structure": as_plain(self.structure),
            "integration": as_plain(self.integration),
            "tau": {"trainable": tau.trainable, "source": tau.source},
            "n_records": len(initial.x0) if isinstance(initial, FreeState) else 1,
            "ts": self.ts,
            "delays": list(self.delays),
            "past_span": None if self.past_span is None else list(self.past_span),
            "input_names": list(self.input_names),
            "output_names": list(self.output_names),
            "input_units": list(self.input_units),
            "output_units": list(self.output_units),
            "provenance": dict(self.provenance),
            **({} if self.physics is None else {"physics": describe_physics(self.physics.plant)}),
        }

    def _check_channels(self, record: Record) -> None:
        if record.nu != self.state_space.nu or record.ny not in (0, self.state_space.ny):
            raise DataError(
                f"record {record.name!r} must have the model's {self.state_space.nu} inputs "
                f"({', '.join(self.input_names)}) and {self.state_space.ny} outputs ({', '.join(self.output_names)}); "
                f"got {record.nu} and {record.ny}. Choose the same columns as in training."
            )
        n = record.nu + record.ny
        own, got = (*self.input_names, *self.output_names)[:n], (*record.input_names, *record.output_names)
        if got != own and not record.is_unnamed and own != unnamed(record.nu, record.ny):
            raise DataError(
                f"channels of {record.name!r} must be the model's, {', '.join(own)}; got {', '.join(got)}. Name the "
                "columns in that order, or, if they are the same channels by other names, say so: record.renamed(...)."
            )
        units = (*self.input_units, *self.output_units)[:n], (*record.input_units, *record.output_units)
        for name, unit, other in zip(own, *units, strict=True):
            if unit and other and unit != other:
                raise DataError(
                    f"channel {name!r} of {record.name!r} must be in {unit}, as in training; it is in {other}. Convert "
                    "it, or correct its unit."
                )

    def _unknown(self, record: Record) -> int:
        """Samples at which inputs act that were there before the record."""
        return samples_within(record, max(self.delays)) if any(self.delays) else 0

    def _delayed(self, record: Record, before: Record | None = None) -> Record:
        """The record with inputs as they act; those on their way at its start are of the record before."""
        if not any(self.delays):
            return record
        slopes = hold_slopes(self.integrator.hold, record.nu)
        if before is None:
            return delay_inputs(record, self.delays, slopes)
        both = _followed_by(before, record.u, record.t)
        return replace(record, u=delay_inputs(both, self.delays, slopes).u[len(before) :])

    @property
    def _finder(self) -> StateFinder:
        return StateFinder(
            self.state_space,
            self.scaling,
            self.integrator,
            self.structure,
            self.ts,
            self.past_span,
            self.longest_step,
            self._engine,
        )

    @property
    def _engine(self) -> Engine:
        return Engine(self.integration.engine, self.integration.threads)

    def _with_own_hold(self, integrator: Integrator) -> Integrator:
        return replace(integrator, hold=self.integrator.hold) if integrator.hold is None else integrator


def _followed_by(record: Record, u: np.ndarray, t: np.ndarray) -> Record:
    """A record with more inputs, that begin a sampling time after its last sample, and no outputs there."""
    return replace(
        record,
        u=np.append(record.u, u, axis=0),
        y=np.append(record.y, np.full((len(u), record.ny), np.nan), axis=0),
        t=np.append(record.t, record.t[-1] + record.ts + t - t[0]),
    )


def input_record(model: Model, u: ArrayLike | None, t: ArrayLike | None) -> Record:
    """Inputs of a model as a record without outputs."""
    if u is None:
        raise ConfigError("`simulate` must be given a record, or inputs as `u`; got neither. Give one of them.")
    clock = {"ts": model.ts} if t is None else {"t": t}
    record = Record.from_arrays(u, None, **clock, name="inputs")
    if record.nu != len(model.input_names):
        return record  # refused with its number of inputs
    return replace(record, input_names=model.input_names, input_units=model.input_units)
