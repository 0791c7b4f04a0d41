"""The course of a simulation: how it is integrated, the times it goes through, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tausid.data.clocks import check_count, inputs_at
from tausid.data.records import UNIFORM_TOLERANCE, Record
from tausid.display import html_table
from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import FixedStep
from tausid.errors import ConfigError
from tausid.model.structure import MOST, Integration
from tausid.shapes import Float

# An interval up to this many times the median one is integrated as one.
WHOLE_STEP = 1.5


@dataclass(frozen=True, eq=False)
class Simulation:
    """A free run over a record: the samples before `n_skipped` went into the initial state and are NaN.

    Args:
        t: time stamps in seconds.
        y: outputs in physical units.
        x: states, normalized.
        n_skipped: leading samples that the initial state was found from.
        status: `ok`, or `diverged`.
        output_names: one name per output.
        initial_state: how it was found: `encoder`, `refine` (least squares from there on), `free` or `given`.
        low: lower end of the band between the members of an ensemble, in physical units; None for one model.
        high: upper end of the band.
    """

    t: Float[np.ndarray, "N"]
    y: Float[np.ndarray, "N ny"]
    x: Float[np.ndarray, "N nx"]
    n_skipped: int
    status: str
    output_names: tuple[str, ...]
    initial_state: str = "encoder"
    low: Float[np.ndarray, "N ny"] | None = None
    high: Float[np.ndarray, "N ny"] | None = None

    def _repr_html_(self) -> str:
        ranges = zip(self.output_names, np.fmin.reduce(self.y), np.fmax.reduce(self.y), strict=True)
        begins = f"the first {self.n_skipped} for the initial state ({self.initial_state})"
        title = f"Simulation: {len(self.t)} samples from {self.t[0]:g} to {self.t[-1]:g} s, {begins}"
        note = "" if self.status == "ok" else f", {self.status}"
        return html_table(title + note, ranges, header=("output", "smallest", "largest"))


def make_integrator(integration: Integration, ts: float) -> FixedStep:
    """How a model is integrated: with enough substeps that none of a median step is longer than `max_dt`."""
    least = 1.0 if integration.max_dt is None else np.ceil(ts / integration.max_dt - UNIFORM_TOLERANCE)
    if least > MOST["substeps"]:
        raise ConfigError(
            f"`max_dt` must be at least a {MOST['substeps']}th of the sampling time of {ts:g} s; got "
            f"{integration.max_dt:g} s. Take a longer one."
        )
    return FixedStep(integration.stepper, max(integration.substeps, int(least)), integration.hold)


def longest_step(integration: Integration, ts: float) -> float:
    """The longest step that is integrated as one, in the substeps of `make_integrator`; longer ones are split."""
    if integration.max_dt is None:
        return WHOLE_STEP * ts
    return integration.max_dt * make_integrator(integration, ts).substeps


@dataclass(frozen=True, eq=False)
class Points:
    """Where a simulation goes through: `t` with inputs `u`, and of them `picked`, which are `t_out[first:]`."""

    t: np.ndarray
    u: np.ndarray
    t_out: np.ndarray
    first: int
    picked: np.ndarray
    tolerance: float

    @classmethod
    def own(cls, record: Record, start: int) -> Points:
        """The record's own samples from the first simulated one on."""
        count = len(record) - start
        tolerance = UNIFORM_TOLERANCE * float(np.min(np.diff(record.t)))
        return cls(record.t[start:], record.u[start:], record.t, start, np.arange(count), tolerance)

    @classmethod
    def other(cls, record: Record, start: int, dt: float, hold: str | tuple[str, ...] | None) -> Points:
        """A grid of its own, and the record's samples, so that no integration step crosses a sample of the input."""
        t_out = _grid(record.t, start, dt)
        # Times closer than this are one time: a small share of the shortest step of both grids.
        tolerance = UNIFORM_TOLERANCE * min(np.min(np.diff(record.t)), np.min(np.diff(t_out), initial=np.inf))
        first = int(np.sum(t_out < record.t[start] - tolerance))
        t = _merge(record.t[start:], t_out[first:], tolerance)
        u = inputs_at(record, t, hold_slopes(hold, record.nu), tolerance)
        return cls(t, u, t_out, first, np.searchsorted(t, t_out[first:] - tolerance), tolerance)


def _grid(t: np.ndarray, start: int, dt: float) -> np.ndarray:
    if not 0 < dt < np.inf:
        raise ConfigError(f"`dt` must be a positive number of seconds; got {dt!r}. Give a step size.")
    check_count((t[-1] - t[0]) / dt, dt, t[-1] - t[0])
    before = np.floor((t[start] - t[0]) / dt + UNIFORM_TOLERANCE)
    after = np.floor((t[-1] - t[start]) / dt + UNIFORM_TOLERANCE)
    return t[start] + np.arange(-before, after + 1) * dt


def _merge(t_record: np.ndarray, t_out: np.ndarray, tolerance: float) -> np.ndarray:
    """Both grids as one, so that no integration step crosses a sample of the input."""
    both = np.union1d(t_record, t_out)
    return both[np.diff(both, prepend=-np.inf) > tolerance]


def pad(values: np.ndarray, missing: int) -> np.ndarray:
    """The values after as many rows of NaN as samples before the first simulated one."""
    return np.concatenate([np.full((missing, values.shape[1]), np.nan), values])


def divergence_message(record: Record, t: np.ndarray, y: np.ndarray) -> str:
    """What is said of a simulation that diverged: where, and what to do."""
    finite = np.isfinite(y).all(axis=1)
    return (
        f"the simulation of {record.name!r} must stay finite; it does not from t = {t[np.argmin(finite)]:g} s on. "
        "Check that the inputs lie in the range of the training data, use more substeps, or train again with a "
        "larger tau."
    )
