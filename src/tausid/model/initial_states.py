"""The state at which the simulation of a record begins: encoded, refined by least squares, or given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tausid.data.clocks import held_between, inputs_at, split_steps
from tausid.data.records import UNIFORM_TOLERANCE, Record
from tausid.data.scaling import Scaling
from tausid.engine.choice import Engine
from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import FixedStep
from tausid.errors import ConfigError, DataError, unknown_name
from tausid.model import free_run
from tausid.model.initial import FreeState
from tausid.model.past import at_nominal_times, fill_between, hold_missing, past_is_known
from tausid.model.rest import AT_REST, at_inputs, find_rest
from tausid.model.state_space import StateSpace
from tausid.model.structure import Structure
from tausid.shapes import ArrayLike, Float

WAYS = ("encoder", "refine", "rest")
# Steps of the training data over which a constant input is simulated to see where the model comes to rest.
SETTLE = 2000


@dataclass(frozen=True, eq=False)
class OutputsAtRest:
    """An initial state that is given by outputs in physical units, NaN where any will do."""

    y: Float[np.ndarray, "ny"]


@dataclass(frozen=True, eq=False)
class Begin:
    """Where a simulation begins.

    Args:
        start: the first simulated sample.
        state: the state there.
        used: leading samples that the state was found from, which are not scored.
        how: `encoder`, `refine`, `free`, `rest` or `given`.
    """

    start: int
    state: Float[np.ndarray, "nx"]
    used: int
    how: str


@dataclass(frozen=True, eq=False)
class StateFinder:
    """Finds where the simulation of a record begins.

    Args:
        state_space: the model in normalized units.
        scaling: physical to normalized units.
        integrator: how the model is integrated.
        structure: what the model is.
        ts: its sampling time in seconds.
        past_span: shortest and longest time in seconds that the encoder's samples spanned in training; None on one
            clock.
        longest_step: longest step in seconds that is not split.
        engine: what computes.
    """

    state_space: StateSpace
    scaling: Scaling
    integrator: FixedStep
    structure: Structure
    ts: float
    past_span: tuple[float, float] | None
    longest_step: float
    engine: Engine

    def find(self, record: Record, x0: ArrayLike | OutputsAtRest | str | None, first: int = 0) -> Begin:
        """The first simulated sample, and the state there; at rest where there are no outputs.

        An estimate looks at no samples before `first`.
        """
        self._check(x0)
        _check_outputs(record, x0)
        initial = self.state_space.initial
        if isinstance(x0, OutputsAtRest):
            return Begin(0, self._with_outputs(record, x0), 0, "rest")
        if _is_rest(record, x0):
            return Begin(0, self._rest(record), 0, "rest")
        if x0 is not None and not isinstance(x0, str):
            return Begin(0, np.asarray(x0, float), 0, "given")
        if isinstance(initial, FreeState):
            return self._estimate(record, Begin(first, np.asarray(initial.expected, float), 0, "free"))
        encoded = self._encode(_from(record, first))
        encoded = replace(encoded, start=encoded.start + first, used=encoded.used + first)
        return self._estimate(record, encoded) if x0 == "refine" else encoded

    def _rest(self, record: Record) -> Float[np.ndarray, "nx"]:
        """The state in which the first inputs leave the model at rest: where it settles, if it does."""
        u = self.scaling.normalize_u(record.u[:1])
        held, steps = np.repeat(u, SETTLE + 1, axis=0), np.full(SETTLE, self.ts)
        settled = free_run.run(self.state_space, self._expected, held, steps, self.integrator, self.engine)[0][-1]
        guess = settled if np.isfinite(settled).all() else self._expected
        state, rate, _ = find_rest(*at_inputs(self.state_space, u[0]), guess)
        if np.max(np.abs(rate)) > AT_REST:
            raise DataError(
                f"the model must come to rest with the first inputs of {record.name!r}, as its initial state; it does "
                "not. Give `x0`: a state, outputs at rest, or a record that it goes on from."
            )
        return state

    def _with_outputs(self, record: Record, wanted: OutputsAtRest) -> Float[np.ndarray, "nx"]:
        """The state with the outputs that are wanted, and as near to rest with the first inputs as can be."""
        u, y = self.scaling.normalize_u(record.u[:1])[0], self.scaling.normalize_y(wanted.y[None])[0]
        state, _, reached = find_rest(*at_inputs(self.state_space, u), self._expected, y)
        if np.nanmax(np.abs(reached - y), initial=0.0) > 10 * AT_REST:
            raise DataError(
                f"outputs that `x0` gives must be within the model's reach; {_listed(wanted.y)} is not with the first "
                f"inputs of {record.name!r}, the nearest is {_listed(self.scaling.physical_y(reached[None])[0])}. Give "
                "others, or a state."
            )
        return state

    @property
    def _expected(self) -> Float[np.ndarray, "nx"]:
        initial = self.state_space.initial
        return np.asarray(initial.expected, float) if isinstance(initial, FreeState) else np.zeros(self.state_space.nx)

    def check(self, record: Record, x0: ArrayLike | str | None = None, first: int = 0) -> None:
        """Check that a beginning can be found, without an estimate by least squares."""
        self._check(x0)
        _check_outputs(record, x0)
        if _is_rest(record, x0):
            return
        estimated = x0 == "refine" if isinstance(x0, str) else isinstance(self.state_space.initial, FreeState)
        if x0 is None or isinstance(x0, str):
            start = first
            if not isinstance(self.state_space.initial, FreeState):
                start += self._encode(_from(record, first)).start
            needed = self._stop(record, start) if estimated else start
            _check_long_enough(record, needed + 1)
            if estimated:
                _check_measured(record, start, needed)

    def _check(self, x0: ArrayLike | OutputsAtRest | str | None) -> None:
        if isinstance(x0, str):
            if x0 not in WAYS:
                raise ConfigError(unknown_name("x0", x0, WAYS) + " Or give a state.")
            if x0 == "encoder" and isinstance(self.state_space.initial, FreeState):
                raise ConfigError(
                    "`x0` 'encoder' must have a model with an encoder; this one was trained with free initial states. "
                    "Use 'refine', or give a state."
                )
        elif isinstance(x0, OutputsAtRest):
            return
        elif x0 is not None and np.shape(x0) != (self.state_space.nx,):
            raise ConfigError(
                f"`x0` must have one value per state, shape ({self.state_space.nx},); got {np.shape(x0)}. "
                "Take it from a simulation's `x`."
            )
        elif x0 is not None and not np.all(np.abs(np.asarray(x0, float)) <= np.finfo(np.float32).max):
            raise ConfigError(f"`x0` must have finite numbers in single precision; got {x0!r}. Correct it.")

    def _stop(self, record: Record, start: int) -> int:
        """The first sample after those that the state at `start` is estimated from."""
        return start + self.structure.estimated_samples(len(record) - start)

    def estimate(self, record: Record, samples: int) -> Float[np.ndarray, "nx"]:
        """The state at the first sample that fits so many samples best, from these samples alone."""
        return self._estimate(record, Begin(0, self._guess(record.part(0, samples)), 0, "free"), samples).state

    def _guess(self, window: Record) -> Float[np.ndarray, "nx"]:
        """What is expected at the start of a record, or what an encoder says of a window that is long enough."""
        initial = self.state_space.initial
        if isinstance(initial, FreeState):
            return np.asarray(initial.expected, float)
        try:
            return self._encode(window).state
        except DataError:
            return np.zeros(self.state_space.nx)

    def _estimate(self, record: Record, begin: Begin, stop: int | None = None) -> Begin:
        """The state at the same sample that fits the samples from there on best."""
        stop = self._stop(record, begin.start) if stop is None else stop
        _check_long_enough(record, stop + 1)
        _check_measured(record, begin.start, stop)
        here = slice(begin.start, stop)
        t, places = split_steps(record.t[here], self.longest_step)
        slopes = hold_slopes(self.integrator.hold, record.nu)
        y = np.full((len(t), record.ny), np.nan)
        y[places] = self.scaling.normalize_y(record.y[here])
        state = free_run.estimate_initial_state(
            self.state_space,
            self.scaling.normalize_u(held_between(record.u[here], places, slopes)),
            y,
            np.diff(t),
            self.integrator,
            begin.state,
            self.engine,
        )
        return Begin(begin.start, state, stop, "free" if begin.how == "free" else "refine")

    def _encode(self, record: Record) -> Begin:
        n = self.state_space.initial.n_past
        start = self._first_start(record, n)
        ago = record.t[start] - record.t[start - n : start]
        if self._was_trained_with(ago):
            begin = Begin(start, np.zeros(0), start, "encoder")
            u, y, lag = record.u[start - n : start], self._past_outputs(record, start, ago), ago / self.ts
        else:  # another clock: the encoder sees the past at the sampling time that it was trained with
            begin, u, y = self._resampled_past(record, n)
            lag = np.arange(n, 0, -1.0)
        past_u, past_y, late = self.scaling.normalize_u(u), self.scaling.normalize_y(y), None
        if self.past_span is not None:
            past_u, past_y = (at_nominal_times(past, lag) for past in (past_u, past_y))
            late = lag - np.arange(n, 0, -1)
        return Begin(begin.start, free_run.encode(self.state_space, past_u, past_y, late), begin.used, "encoder")

    def _first_start(self, record: Record, n: int) -> int:
        _check_long_enough(record, n + 1)
        if not np.isnan(record.y[:n]).any():
            return n
        known = past_is_known(record.y, n)
        if not known.any():
            raise DataError(
                f"record {record.name!r} must have every output measured within {n} samples before some sample, for "
                "the initial state; it has not. Cut the record so that it begins with measured ones, or give `x0`."
            )
        return int(np.argmax(known))

    def _was_trained_with(self, ago: Float[np.ndarray, "n_past"]) -> bool:
        if not len(ago):
            return True
        if self.past_span is not None:
            low, high = self.past_span
            return bool(low * (1 - UNIFORM_TOLERANCE) <= ago[0] <= high * (1 + UNIFORM_TOLERANCE))
        steps = -np.diff(ago, append=0.0)
        # A record that counts as uniform, on a clock that counts as the model's, is off by up to two tolerances.
        return bool(np.all(np.abs(steps - self.ts) <= 3 * UNIFORM_TOLERANCE * self.ts))

    def _past_outputs(
        self, record: Record, start: int, ago: Float[np.ndarray, "n_past"]
    ) -> Float[np.ndarray, "n_past ny"]:
        past = slice(start - len(ago), start)
        measured = ~np.isnan(record.y[past])
        if measured.all():
            return record.y[past]
        return fill_between(-ago, hold_missing(record.y[:start])[past], measured)

    def _resampled_past(self, record: Record, n: int) -> tuple[Begin, np.ndarray, np.ndarray]:
        long_enough = record.t - record.t[0] >= n * self.ts * (1 - UNIFORM_TOLERANCE)
        if not long_enough.any():
            raise DataError(
                f"record {record.name!r} must last at least {n} steps of the training data's {self.ts:g} s, for the "
                f"initial state; it lasts {record.t[-1] - record.t[0]:g} s. Give a longer record, or `x0`."
            )
        start = int(np.argmax(long_enough))
        times = np.maximum(record.t[start] - self.ts * np.arange(n, 0, -1), record.t[0])
        y = np.stack([_interpolate_measured(times, record.t, channel) for channel in record.y.T], axis=1)
        tolerance = UNIFORM_TOLERANCE * float(np.min(np.diff(record.t)))
        u = inputs_at(record, times, hold_slopes(self.integrator.hold, record.nu), tolerance)
        # Between the last two samples the interpolation looks at the first simulated one: it is not scored then.
        looks_ahead = times[-1] > record.t[start - 1] + tolerance
        return Begin(start, np.zeros(0), start + int(looks_ahead), "encoder"), u, y


def _from(record: Record, first: int) -> Record:
    return record.part(first, len(record)) if first else record


def _is_rest(record: Record, x0: object) -> bool:
    return (isinstance(x0, str) and x0 == "rest") or (x0 is None and not record.ny)


def _check_outputs(record: Record, x0: object) -> None:
    if not record.ny and isinstance(x0, str) and x0 != "rest":
        raise DataError(
            f"record {record.name!r} must have outputs for the initial state {x0!r}; it has inputs alone. Begin at "
            "rest, from a state, from outputs at rest, or from a record that it goes on from."
        )


def _listed(values: np.ndarray) -> str:
    return ", ".join("any" if np.isnan(value) else f"{value:.4g}" for value in values)


def _check_long_enough(record: Record, needed: int) -> None:
    if len(record) < needed:
        raise DataError(
            f"record {record.name!r} must have at least {needed} samples for the initial state; got {len(record)}. "
            "Give a longer record, or `x0`."
        )


def _check_measured(record: Record, start: int, stop: int) -> None:
    if np.isnan(record.y[start:stop]).all():
        raise DataError(
            f"record {record.name!r} must have measured outputs among samples {start} to {stop - 1}, for the initial "
            "state; all are missing. Cut the record so that it begins with measured ones, or give `x0`."
        )


def _interpolate_measured(times: np.ndarray, t: np.ndarray, channel: np.ndarray) -> np.ndarray:
    measured = ~np.isnan(channel)
    return np.interp(times, t[measured], channel[measured])
