"""The identified model in physical units: simulate a record, save, load."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike

from tausid import free_run
from tausid.config import Config
from tausid.display import html_table
from tausid.errors import ConfigError, DataError, DivergenceError, StorageError
from tausid.holds import HOLDS, hold_slopes
from tausid.models import FreeState, StateSpace, build_state_space
from tausid.records import UNIFORM_TOLERANCE, Record
from tausid.rollout import Engine, FixedStep, Integrator
from tausid.scaling import Scaling
from tausid.storage import read_arrays, write_arrays
from tausid.tau import Tau


@dataclass(frozen=True, eq=False)
class Simulation:
    """A free run over a record: the samples before `n_skipped` went into the initial state and are NaN.

    Args:
        t: time stamps in seconds.
        y: outputs in physical units.
        x: states, normalized.
        n_skipped: leading samples that the initial state was found from.
        status: `ok`, or `diverged` where the simulation left the finite numbers.
        output_names: one name per output.
    """

    t: Float[np.ndarray, "N"]
    y: Float[np.ndarray, "N ny"]
    x: Float[np.ndarray, "N nx"]
    n_skipped: int
    status: str
    output_names: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """An identified model: a state-space model with the scaling, clock and integration it was trained with.

    Args:
        state_space: the model in normalized units.
        scaling: physical to normalized units.
        integrator: how it was integrated in training.
        ts: sampling time of the training data in seconds, which the encoder's samples must have.
        config: the settings it was trained with.
        input_names: one name per input.
        output_names: one name per output.
        input_units: one unit per input.
        output_units: one unit per output.
        provenance: where it came from: versions, data, status; plain JSON values.
    """

    state_space: StateSpace
    scaling: Scaling
    integrator: FixedStep
    ts: float
    config: Config
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_units: tuple[str, ...]
    output_units: tuple[str, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)

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
            ("network", f"{self.config.network}, hidden {list(self.config.hidden)}, {self.config.activation}"),
            ("integration", f"{self.config.stepper}, Ts = {self.ts:g} s"),
        ]
        return html_table("Model dx/dt = (1/tau) f(x, u), y = g(x, u)", rows)

    @property
    def tau(self) -> float | tuple[float, ...]:
        """The normalization constant in seconds: one number, or one per state."""
        return self.state_space.tau.now

    @property
    def ts_over_tau(self) -> float:
        """The normalized sampling time; with one tau per state, from their mean."""
        return float(self.ts / np.mean(self.tau))

    def simulate(
        self,
        record: Record,
        *,
        dt: float | None = None,
        x0: ArrayLike | None = None,
        integrator: Integrator | None = None,
        throw: bool = True,
    ) -> Simulation:
        """Simulate the record's inputs: measured outputs are used for the initial state and nothing else.

        Args:
            record: inputs, and enough outputs at the start for the initial state.
            dt: seconds between the simulated samples; by default the record's own time stamps.
            x0: state at the first sample (normalized), instead of one found from the first samples.
            integrator: another integration than in training, such as `Adaptive` to check it.
            throw: whether a simulation that leaves the finite numbers raises; else its status says so.

        Returns:
            The simulation, as long as the record (or as the grid that `dt` gives).

        Raises:
            DataError: other channels than the model's, or too few samples for the initial state.
            DivergenceError: the states left the finite numbers.
        """
        self._check_channels(record)
        how = self._with_own_hold(integrator or self.integrator)
        start, x_start = self._start(record, x0)
        t_out = record.t if dt is None else _grid(record.t, start, dt)
        # Times closer than this are one time: a small share of the shortest step of both grids.
        tolerance = UNIFORM_TOLERANCE * min(np.min(np.diff(record.t)), np.min(np.diff(t_out), initial=np.inf))
        first = int(np.sum(t_out < record.t[start] - tolerance))
        t_run = _merge(record.t[start:], t_out[first:], tolerance)
        u_run = _inputs_at(record, t_run, how.hold, tolerance)
        x_run, y_run = free_run.run(
            self.state_space,
            jnp.asarray(x_start),
            jnp.asarray(self.scaling.normalize_u(u_run)),
            jnp.asarray(np.diff(t_run)),
            how,
            Engine(self.config.engine, self.config.threads),
        )
        picked = np.searchsorted(t_run, t_out[first:] - tolerance)
        x = _pad(np.asarray(x_run, float)[picked], first)
        y = _pad(self.scaling.physical_y(np.asarray(y_run, float))[picked], first)
        status = "ok" if np.all(np.isfinite(y[first:])) else "diverged"
        if status == "diverged" and throw:
            raise DivergenceError(_divergence_message(record, t_out[first:], y[first:]))
        skipped = int(np.sum(t_out < record.t[self._skipped(start, x0)] - tolerance))
        return Simulation(t_out, y, x, skipped, status, self.output_names)

    def check(self, record: Record) -> None:
        """Check that the record can be simulated, without doing it.

        Args:
            record: the record.

        Raises:
            DataError: other channels than the model's, or no initial state from its first samples.
        """
        self._check_channels(record)
        if isinstance(self.state_space.initial, FreeState):
            _check_long_enough(record, free_run.initial_samples(self.config) + 1)
        else:
            self._start(record, None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to a file: safetensors and JSON, nothing that can run.

        Args:
            path: where to write; usually ends in `.safetensors`.

        Returns:
            The path.

        Raises:
            StorageError: the file cannot be written.
        """
        arrays = {**named_arrays(self.state_space), **_scaling_arrays(self.scaling)}
        return write_arrays(path, arrays, kind="model", content=self._content())

    def _content(self) -> dict[str, Any]:
        tau = self.state_space.tau
        initial = self.state_space.initial
        return {
            "config": self.config.as_dict(),
            "tau": {"trainable": tau.trainable, "source": tau.source},
            "n_records": len(initial.x0) if isinstance(initial, FreeState) else 1,
            "ts": self.ts,
            "input_names": list(self.input_names),
            "output_names": list(self.output_names),
            "input_units": list(self.input_units),
            "output_units": list(self.output_units),
            "provenance": dict(self.provenance),
        }

    def _check_channels(self, record: Record) -> None:
        if (record.nu, record.ny) != (self.state_space.nu, self.state_space.ny):
            raise DataError(
                f"record {record.name!r} must have the model's {self.state_space.nu} inputs "
                f"({', '.join(self.input_names)}) and {self.state_space.ny} outputs ({', '.join(self.output_names)}); "
                f"got {record.nu} and {record.ny}. Choose the same columns as in training."
            )
        for got, own in ((record.input_names, self.input_names), (record.output_names, self.output_names)):
            if got != own and sorted(got) == sorted(own):
                raise DataError(
                    f"channels of {record.name!r} must be in the model's order, {', '.join(own)}; got {', '.join(got)}."
                    " Name the columns in that order."
                )

    def _with_own_hold(self, integrator: Integrator) -> Integrator:
        return replace(integrator, hold=self.integrator.hold) if integrator.hold is None else integrator

    def _start(self, record: Record, x0: ArrayLike | None) -> tuple[int, np.ndarray]:
        """The first simulated sample, and the state there."""
        if x0 is not None:
            return 0, self._given_state(x0)
        needed = free_run.initial_samples(self.config)
        if isinstance(self.state_space.initial, FreeState):
            _check_long_enough(record, needed + 1)
            head = record.part(0, needed)
            return 0, free_run.estimate_initial_state(
                self.state_space,
                self.scaling.normalize_u(head.u),
                self.scaling.normalize_y(head.y),
                np.diff(head.t),
                self.integrator,
            )
        return self._encode(record, needed)

    def _given_state(self, x0: ArrayLike) -> np.ndarray:
        state = np.asarray(x0, float)
        if state.shape != (self.state_space.nx,):
            raise ConfigError(
                f"`x0` must have one value per state, shape ({self.state_space.nx},); got {state.shape}. "
                "Take it from a simulation's `x`."
            )
        return state

    def _encode(self, record: Record, n_past: int) -> tuple[int, np.ndarray]:
        _check_long_enough(record, n_past + 1)
        if abs(record.ts - self.ts) <= UNIFORM_TOLERANCE * self.ts:
            start, u, y = n_past, record.u[:n_past], record.y[:n_past]
        else:  # another clock: the encoder sees the past at the sampling time that it was trained with
            start, u, y = _resampled_past(record, self.ts, n_past, self.integrator.hold)
        past_u, past_y = self.scaling.normalize_u(u), self.scaling.normalize_y(y)
        if np.isnan(past_y).any():
            raise DataError(
                f"record {record.name!r} must have its first {n_past} outputs measured, for the initial state; "
                "some are NaN. Cut the record so that it starts with measured ones, or give `x0`."
            )
        state = free_run.encode(self.state_space, jnp.asarray(past_u), jnp.asarray(past_y))
        return start, np.asarray(state, float)

    def _skipped(self, start: int, x0: ArrayLike | None) -> int:
        if x0 is None and isinstance(self.state_space.initial, FreeState):
            return free_run.initial_samples(self.config)
        return start


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model that `Model.save` wrote.

    Args:
        path: the file.

    Returns:
        The model.

    Raises:
        StorageError: the file is missing, truncated, corrupted, of another program or of a future version.
    """
    arrays, content = read_arrays(path, kind="model")
    try:
        config = Config.from_dict(content["config"])
        tau = Tau(arrays["tau.start"], **content["tau"])
        skeleton = build_state_space(
            config,
            tau,
            nu=len(content["input_names"]),
            ny=len(content["output_names"]),
            n_records=content["n_records"],
            rng=np.random.default_rng(0),
        )
        return Model(
            state_space=fill_arrays(skeleton, arrays),
            scaling=Scaling(**{name: arrays[f"scaling.{name}"] for name in SCALING_FIELDS}),
            integrator=FixedStep(config.stepper, config.substeps, config.hold),
            ts=content["ts"],
            config=config,
            input_names=tuple(content["input_names"]),
            output_names=tuple(content["output_names"]),
            input_units=tuple(content["input_units"]),
            output_units=tuple(content["output_units"]),
            provenance=content["provenance"],
        )
    except (KeyError, TypeError, ConfigError) as error:
        raise StorageError(
            f"model file {path} must describe a tausid model; it does not ({error}). Make it anew."
        ) from None


SCALING_FIELDS = ("u_mean", "u_std", "y_mean", "y_std")


def named_arrays(tree: PyTree[Array]) -> dict[str, np.ndarray]:
    """All arrays of a tree by their path, such as `f.mlp.weights[0]`.

    Args:
        tree: a model, or any tree of arrays.

    Returns:
        The arrays by name.
    """
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))[0]
    return {_path_name(path): np.asarray(leaf) for path, leaf in leaves}


def fill_arrays(tree: PyTree[Array], arrays: Mapping[str, np.ndarray]) -> PyTree[Array]:
    """The tree with its arrays replaced by those of the same names.

    Args:
        tree: a model, or any tree of arrays.
        arrays: what `named_arrays` gave.

    Returns:
        The tree with the new arrays.

    Raises:
        KeyError: an array is missing.
        TypeError: an array has another shape.
    """

    def replace(path: Any, leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        new = arrays[_path_name(path)]
        if new.shape != leaf.shape:
            raise TypeError(f"{_path_name(path)} has shape {new.shape} instead of {leaf.shape}")
        return new if isinstance(leaf, np.ndarray) else jnp.asarray(new)

    return jax.tree_util.tree_map_with_path(replace, tree)


def _path_name(path: Any) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def _scaling_arrays(scaling: Scaling) -> dict[str, np.ndarray]:
    return {f"scaling.{name}": getattr(scaling, name) for name in SCALING_FIELDS}


def _check_long_enough(record: Record, needed: int) -> None:
    if len(record) < needed:
        raise DataError(
            f"record {record.name!r} must have at least {needed} samples for the initial state; got {len(record)}. "
            "Give a longer record, or `x0`."
        )


def _grid(t: np.ndarray, start: int, dt: float) -> np.ndarray:
    if not 0 < dt < np.inf:
        raise ConfigError(f"`dt` must be a positive number of seconds; got {dt!r}. Give a step size.")
    before = np.floor((t[start] - t[0]) / dt + UNIFORM_TOLERANCE)
    after = np.floor((t[-1] - t[start]) / dt + UNIFORM_TOLERANCE)
    return t[start] + np.arange(-before, after + 1) * dt


def _merge(t_record: np.ndarray, t_out: np.ndarray, tolerance: float) -> np.ndarray:
    """Both grids as one, so that no integration step crosses a sample of the input."""
    both = np.union1d(t_record, t_out)
    return both[np.diff(both, prepend=-np.inf) > tolerance]


def _inputs_at(record: Record, t: np.ndarray, hold: str | tuple[str, ...] | None, tolerance: float) -> np.ndarray:
    """The record's inputs at other times: the sample before (zero-order), or between the neighbours (first-order)."""
    slopes = hold_slopes(hold, record.nu)
    before = np.searchsorted(record.t, t + tolerance, side="right") - 1
    columns = [
        np.interp(t, record.t, record.u[:, i]) if slope == HOLDS["first"] else record.u[before, i]
        for i, slope in enumerate(slopes)
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(t), 0))


def _resampled_past(
    record: Record, ts: float, n_past: int, hold: str | tuple[str, ...] | None
) -> tuple[int, np.ndarray, np.ndarray]:
    long_enough = record.t - record.t[0] >= n_past * ts * (1 - UNIFORM_TOLERANCE)
    if not long_enough.any():
        raise DataError(
            f"record {record.name!r} must last at least {n_past} steps of the training data's {ts:g} s, for the "
            f"initial state; it lasts {record.t[-1] - record.t[0]:g} s. Give a longer record, or `x0`."
        )
    start = int(np.argmax(long_enough))
    times = np.maximum(record.t[start] - ts * np.arange(n_past, 0, -1), record.t[0])
    y = np.stack([_interpolate_measured(times, record.t, channel) for channel in record.y.T], axis=1)
    return start, _inputs_at(record, times, hold, UNIFORM_TOLERANCE * float(np.min(np.diff(record.t)))), y


def _interpolate_measured(times: np.ndarray, t: np.ndarray, channel: np.ndarray) -> np.ndarray:
    measured = ~np.isnan(channel)
    return np.interp(times, t[measured], channel[measured])


def _pad(values: np.ndarray, missing: int) -> np.ndarray:
    return np.concatenate([np.full((missing, values.shape[1]), np.nan), values])


def _divergence_message(record: Record, t: np.ndarray, y: np.ndarray) -> str:
    finite = np.isfinite(y).all(axis=1)
    return (
        f"the simulation of {record.name!r} must stay finite; it does not from t = {t[np.argmin(finite)]:g} s on. "
        "Check that the inputs lie in the range of the training data, use more substeps, or train again with a "
        "larger tau or A_start='-I'."
    )
