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
from tausid.clocks import held_between, inputs_at, split_steps
from tausid.config import Config
from tausid.display import html_table
from tausid.errors import ConfigError, DataError, DivergenceError, StorageError
from tausid.holds import hold_slopes
from tausid.initial_states import StateFinder
from tausid.models import FreeState, StateSpace, build_state_space
from tausid.physics import PLANTS, AbstractPhysics, KnownPart, describe_physics, restore_physics
from tausid.records import UNIFORM_TOLERANCE, Record
from tausid.rollout import Engine, FixedStep, Integrator
from tausid.scaling import Scaling
from tausid.storage import write_arrays
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
        past_span: shortest and longest time in seconds that the encoder's samples spanned in training, for one that
            sees time stamps; None on one clock.
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
    past_span: tuple[float, float] | None = None

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
    def physics(self) -> KnownPart | None:
        """The known equations with their fitted `parameters`; None for a model without any."""
        return self.state_space.physics

    @property
    def ts_over_tau(self) -> float:
        """The normalized sampling time; with one tau per state, from their mean."""
        return float(self.ts / np.mean(self.tau))

    @property
    def longest_step(self) -> float:
        """The longest step in seconds that is integrated as one; longer ones are split."""
        return longest_step(self.config, self.ts)

    def simulate(
        self,
        record: Record,
        *,
        dt: float | None = None,
        x0: ArrayLike | str | None = None,
        integrator: Integrator | None = None,
        throw: bool = True,
    ) -> Simulation:
        """Simulate the record's inputs: measured outputs are used for the initial state and nothing else.

        Args:
            record: inputs, and enough outputs at the start for the initial state.
            dt: seconds between the simulated samples; by default the record's own time stamps.
            x0: where to begin: `encoder`; `refine`, from there by least squares over the next samples (20, or 5 nx);
                a state (normalized) at the first sample; None for what the model was trained with.
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
        begin = self._finder.find(record, x0)
        points = _Points.own(record, begin.start) if dt is None else _Points.other(record, begin.start, dt, how.hold)
        t_run, places = split_steps(points.t, self.longest_step)
        u_run = held_between(points.u, places, hold_slopes(how.hold, record.nu))
        x_run, y_run = free_run.run(
            self.state_space,
            jnp.asarray(begin.state),
            jnp.asarray(self.scaling.normalize_u(u_run)),
            jnp.asarray(np.diff(t_run)),
            how,
            Engine(self.config.engine, self.config.threads),
        )
        picked = places[points.picked]
        x = _pad(np.asarray(x_run, float)[picked], points.first)
        y = _pad(self.scaling.physical_y(np.asarray(y_run, float))[picked], points.first)
        # The states as well: an output with limits is finite where its state is not.
        finite = np.isfinite(y[points.first :]).all() and np.isfinite(x[points.first :]).all()
        status = "ok" if finite else "diverged"
        if status == "diverged" and throw:
            raise DivergenceError(_divergence_message(record, points.t_out[points.first :], y[points.first :]))
        scored_from = record.t[begin.used] if begin.used < len(record) else np.inf
        skipped = int(np.sum(points.t_out < scored_from - points.tolerance))
        return Simulation(points.t_out, y, x, skipped, status, self.output_names, begin.how)

    def check(self, record: Record, *, x0: ArrayLike | str | None = None) -> None:
        """Check that the record can be simulated, without doing it.

        Args:
            record: the record.
            x0: as for `simulate`.

        Raises:
            DataError: other channels than the model's, or no initial state from its first samples.
        """
        self._check_channels(record)
        self._finder.check(record, x0)

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
        return {**named_arrays(self.state_space), **_scaling_arrays(self.scaling)}

    def content(self) -> dict[str, Any]:
        """All that is no array, as plain JSON values, for a file."""
        tau = self.state_space.tau
        initial = self.state_space.initial
        return {
            "config": self.config.as_dict(),
            "tau": {"trainable": tau.trainable, "source": tau.source},
            "n_records": len(initial.x0) if isinstance(initial, FreeState) else 1,
            "ts": self.ts,
            "past_span": None if self.past_span is None else list(self.past_span),
            "input_names": list(self.input_names),
            "output_names": list(self.output_names),
            "input_units": list(self.input_units),
            "output_units": list(self.output_units),
            "provenance": dict(self.provenance),
            **({} if self.physics is None else {"physics": describe_physics(self.physics.plant)}),
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

    @property
    def _finder(self) -> StateFinder:
        return StateFinder(
            self.state_space,
            self.scaling,
            self.integrator,
            self.config,
            self.ts,
            self.past_span,
            self.longest_step,
        )

    def _with_own_hold(self, integrator: Integrator) -> Integrator:
        return replace(integrator, hold=self.integrator.hold) if integrator.hold is None else integrator


def make_model(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    content: Mapping[str, Any],
    physics: AbstractPhysics | type[AbstractPhysics] | None,
) -> Model:
    """A model from what its file holds.

    Args:
        path: the file, for messages.
        arrays: its arrays by name.
        content: its plain values.
        physics: class of the known equations, where it is not one of the package's own.

    Returns:
        The model.

    Raises:
        StorageError: the content does not describe a model.
        ConfigError: the class of its known equations must be given, or is another.
    """
    kind = _find_plant(content["physics"]["name"], physics) if "physics" in content else None
    try:
        config = Config.from_dict(content["config"])
        tau = Tau(arrays["tau.start"], **content["tau"])
        scaling = Scaling(**{name: arrays[f"scaling.{name}"] for name in SCALING_FIELDS})
        known = None
        if kind is not None:
            plant = restore_physics(kind, content["physics"])
            known = KnownPart.start(plant, scaling, trainable=config.correction != "none")
        skeleton = build_state_space(
            config,
            tau,
            nu=len(content["input_names"]),
            ny=len(content["output_names"]),
            n_records=content["n_records"],
            rng=np.random.default_rng(0),
            physics=known,
        )
        return Model(
            state_space=with_limits(fill_arrays(skeleton, arrays), config, scaling),
            scaling=scaling,
            integrator=make_integrator(config, content["ts"]),
            ts=content["ts"],
            config=config,
            input_names=tuple(content["input_names"]),
            output_names=tuple(content["output_names"]),
            input_units=tuple(content["input_units"]),
            output_units=tuple(content["output_units"]),
            provenance=content["provenance"],
            past_span=tuple(span) if (span := content.get("past_span")) else None,
        )
    except (KeyError, TypeError, ConfigError) as error:
        raise StorageError(
            f"model file {path} must describe a tausid model; it does not ({error}). Make it anew."
        ) from None


def with_limits(state_space: StateSpace, config: Config, scaling: Scaling) -> StateSpace:
    """The model with the limits of its outputs.

    Args:
        state_space: the model.
        config: the limits in physical units, one pair per output.
        scaling: physical to normalized units.

    Returns:
        The model; as it is where no output has a limit.
    """
    limits = config.output_limits
    if isinstance(limits, str):
        return state_space
    lows = [-np.inf if low is None else low for low, _ in limits]
    highs = [np.inf if high is None else high for _, high in limits]
    normalized = [scaling.normalize_y(np.array([ends]))[0].tolist() for ends in (lows, highs)]
    return replace(state_space, limits=tuple(zip(*normalized, strict=True)))


def _find_plant(name: str, given: AbstractPhysics | type[AbstractPhysics] | None) -> type[AbstractPhysics]:
    kind = PLANTS.get(name) if given is None else given if isinstance(given, type) else type(given)
    if kind is None:
        raise ConfigError(
            f"`physics` must be given to read a model with equations of your own; this one has {name!r}. "
            f"Write load_model(path, physics={name})."
        )
    if kind.__name__ != name:
        raise ConfigError(
            f"`physics` must be the class that the model was fitted with, {name!r}; got {kind.__name__!r}. "
            "Give that class."
        )
    return kind


# An interval up to this many times the median one is integrated as one.
WHOLE_STEP = 1.5


def make_integrator(config: Config, ts: float) -> FixedStep:
    """How a model is integrated: with enough substeps that none of a median step is longer than `max_dt`.

    Args:
        config: stepper, substeps, hold and `max_dt`.
        ts: the median step in seconds.

    Returns:
        The integrator.
    """
    least = 1 if config.max_dt is None else int(np.ceil(ts / config.max_dt - UNIFORM_TOLERANCE))
    return FixedStep(config.stepper, max(config.substeps, least), config.hold)


def longest_step(config: Config, ts: float) -> float:
    """The longest step that is integrated as one, in the substeps of `make_integrator`; longer ones are split.

    Args:
        config: substeps and `max_dt`.
        ts: the median step in seconds.

    Returns:
        Seconds.
    """
    if config.max_dt is None:
        return WHOLE_STEP * ts
    return config.max_dt * make_integrator(config, ts).substeps


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


@dataclass(frozen=True, eq=False)
class _Points:
    """Where a simulation goes through: `t` with inputs `u`, and of them `picked`, which are `t_out[first:]`."""

    t: np.ndarray
    u: np.ndarray
    t_out: np.ndarray
    first: int
    picked: np.ndarray
    tolerance: float

    @classmethod
    def own(cls, record: Record, start: int) -> _Points:
        """The record's own samples from the first simulated one on."""
        count = len(record) - start
        tolerance = UNIFORM_TOLERANCE * float(np.min(np.diff(record.t)))
        return cls(record.t[start:], record.u[start:], record.t, start, np.arange(count), tolerance)

    @classmethod
    def other(cls, record: Record, start: int, dt: float, hold: str | tuple[str, ...] | None) -> _Points:
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
    before = np.floor((t[start] - t[0]) / dt + UNIFORM_TOLERANCE)
    after = np.floor((t[-1] - t[start]) / dt + UNIFORM_TOLERANCE)
    return t[start] + np.arange(-before, after + 1) * dt


def _merge(t_record: np.ndarray, t_out: np.ndarray, tolerance: float) -> np.ndarray:
    """Both grids as one, so that no integration step crosses a sample of the input."""
    both = np.union1d(t_record, t_out)
    return both[np.diff(both, prepend=-np.inf) > tolerance]


def _pad(values: np.ndarray, missing: int) -> np.ndarray:
    return np.concatenate([np.full((missing, values.shape[1]), np.nan), values])


def _divergence_message(record: Record, t: np.ndarray, y: np.ndarray) -> str:
    finite = np.isfinite(y).all(axis=1)
    return (
        f"the simulation of {record.name!r} must stay finite; it does not from t = {t[np.argmin(finite)]:g} s on. "
        "Check that the inputs lie in the range of the training data, use more substeps, or train again with a "
        "larger tau or A_start='-I'."
    )
