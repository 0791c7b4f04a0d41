"""Where a fit with known equations starts: their parameters and states by least squares over whole records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tausid.clocks import held_between, median_step, split_steps
from tausid.config import Config
from tausid.errors import ConfigError
from tausid.free_run import LOST
from tausid.holds import hold_slopes
from tausid.models import Encoder, FreeState, StateSpace
from tausid.networks import AbstractNetwork
from tausid.physics import AbstractPhysics, KnownPart, check_physics
from tausid.records import Record
from tausid.rollout import FixedStep, rollout_scan
from tausid.scaling import Scaling
from tausid.simulation import longest_step, make_integrator
from tausid.training.optimiser import mean_one
from tausid.training.starting import start_encoder
from tausid.windows import WindowSource

MOST_EVALUATIONS = 200
# Directions of the parameters that move the outputs less than this share of the strongest one are lost in rounding.
UNSEEN = 1e-6


@dataclass(frozen=True, eq=False)
class KnownStart:
    """Known equations fitted to the training records, and the states that they go through there.

    Args:
        known: the equations with fitted parameters and scaled states.
        states: normalized states at the samples of each record.
    """

    known: KnownPart
    states: tuple[Float[np.ndarray, "N nx"], ...]


# Settings that must stay as they are with known equations, and why.
UNCHANGED: dict[str, tuple[Any, str]] = {
    "init": ("random", "as these have a start of their own"),
    "A_form": ("free", "as A is a part of what corrects them"),
    "barrier_weight": (0.0, "as A is a part of what corrects them"),
    "feedthrough": (True, "as these say what their outputs depend on"),
    "output_limits": ("none", "as these say where their outputs end"),
}


def settle_physics(
    config: Config, physics: AbstractPhysics | None, records: Sequence[Record], *, nx: int | str | None
) -> Config:
    """The settings with what known equations ask for: as many states as they have, and steps short enough.

    Args:
        config: the settings.
        physics: the known equations, or None.
        records: training records.
        nx: number of states that was asked for; None for those of the equations.

    Returns:
        The settings.

    Raises:
        ConfigError: the declaration breaks a rule, the settings do not go with known equations, or there are fewer
            states than the equations have, or more and no network for them; a correction of no equations.
    """
    if physics is None:
        if config.correction != "none":
            raise ConfigError(
                f"`correction` must have known equations to correct; got {config.correction!r} and no physics. "
                "Give physics, or leave it out."
            )
        return config
    check_physics(physics, nu=records[0].nu, ny=records[0].ny)
    own = len(physics.states)
    config = dataclasses.replace(config, nx=own if nx is None else nx)
    for name, (value, reason) in UNCHANGED.items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"`{name}` must be {value!r} with known equations, {reason}; got {getattr(config, name)!r}. Set it so."
            )
    if config.order < own or (config.order > own and config.correction == "none"):
        more = "or more with correction='network'" if config.correction == "none" else "or more"
        raise ConfigError(
            f"`nx` must be {own}, the states of {type(physics).__name__}, {more}; got {config.nx}. Leave it out."
        )
    if config.max_dt is None and physics.max_dt is not None:
        config = dataclasses.replace(config, max_dt=float(physics.max_dt))
    return config


def fit_known(physics: AbstractPhysics, records: Sequence[Record], config: Config) -> KnownStart:
    """Parameters and initial states that make the simulation of whole records fit best.

    `min over p, x0 of sum w (y - y_hat)^2` (eq. 3), each output over its deviation, by Gauss-Newton steps in a trust
    region, with derivatives through the rollout; one initial state per record. Standard deviations of the parameters
    are those of linearized least squares with white residuals.

    Args:
        physics: the known equations.
        records: training records.
        config: hold, stepper and steps, the weights w of the outputs, and whether a network corrects the equations:
            training goes on with the parameters then, and leaves them as they are otherwise.

    Returns:
        The fitted equations.

    Raises:
        ConfigError: the simulation from the start values leaves the finite numbers.
    """
    from scipy.optimize import least_squares

    scaling = Scaling.from_records(records)
    known = KnownPart.start(physics, scaling, trainable=config.correction != "none")
    stretches = [_Stretch.of(record, scaling, config, median_step(records)) for record in records]
    problem = _LeastSquares(known, tuple(stretches))
    start = problem.start
    if not np.all(np.isfinite(problem.raw_residuals(start))):
        raise ConfigError(
            f"`physics` must simulate the training records from its start values; {type(physics).__name__} leaves the "
            "finite numbers. Give other start values or bounds, or a smaller max_dt."
        )
    # Single-precision residuals: tolerances below 1e-6 would only chase rounding.
    found = least_squares(
        problem.residuals, start, jac=problem.jacobian, x_scale="jac", max_nfev=MOST_EVALUATIONS,
        xtol=1e-6, ftol=1e-7, gtol=1e-8,
    )  # fmt: skip
    return problem.finish(found.x, found.fun, np.asarray(found.jac))


def start_from_known(model: StateSpace, start: KnownStart, source: WindowSource) -> StateSpace:
    """The model with its initial states those of the fitted equations: per record, or a linear map in the encoder.

    Args:
        model: the model, untrained.
        start: the fitted equations.
        source: the training windows.

    Returns:
        The model; an encoder without a linear part stays as it is.
    """
    if isinstance(model.initial, FreeState):
        x0 = np.stack([states[0] for states in start.states])
        x0 = np.pad(x0, ((0, 0), (0, model.nx - x0.shape[1])))
        return eqx.tree_at(lambda m: m.initial.x0, model, jnp.asarray(x0))
    assert isinstance(model.initial, Encoder)
    if not isinstance(model.initial.network, AbstractNetwork):
        return model
    states = np.concatenate(start.states)
    return start_encoder(model, source, lambda samples: states[samples])


@dataclass(frozen=True, eq=False)
class _Stretch:
    """A record in normalized units, its long steps split; the weights are zero where nothing was measured."""

    u: Float[Array, "M nu"]
    y: Float[Array, "M ny"]
    weight: Float[Array, "M ny"]
    dt: Float[Array, "M-1"]
    integrator: FixedStep
    places: np.ndarray

    @classmethod
    def of(cls, record: Record, scaling: Scaling, config: Config, ts: float) -> _Stretch:
        t, places = split_steps(record.t, longest_step(config, ts))
        y = np.full((len(t), record.ny), np.nan)
        y[places] = scaling.normalize_y(record.y)
        u = scaling.normalize_u(held_between(record.u, places, hold_slopes(config.hold, record.nu)))
        weights = np.sqrt(mean_one(config.output_weights) or np.ones(record.ny))
        return cls(
            jnp.asarray(u),
            jnp.asarray(np.nan_to_num(y)),
            jnp.asarray(np.where(np.isnan(y), 0.0, weights)),
            jnp.asarray(np.diff(t)),
            make_integrator(config, ts),
            places,
        )


@dataclass(frozen=True, eq=False)
class _LeastSquares:
    """Residuals as a function of all free numbers: the parameters', then the initial state of each record."""

    known: KnownPart
    stretches: tuple[_Stretch, ...]

    @property
    def n_parameters(self) -> int:
        return len(self.known.free)

    @property
    def start(self) -> np.ndarray:
        guess = [state.start for state in self.known.plant.states.values()]
        return np.concatenate([np.asarray(self.known.free, float), *[guess] * len(self.stretches)])

    def parts(self, theta: np.ndarray) -> list[np.ndarray]:
        """The free numbers that each record depends on."""
        n, nx = self.n_parameters, self.known.nx
        begins = [n + nx * i for i in range(len(self.stretches))]
        return [np.concatenate([theta[:n], theta[begin : begin + nx]]) for begin in begins]

    def raw_residuals(self, theta: np.ndarray) -> np.ndarray:
        pairs = zip(self.parts(theta), self.stretches, strict=True)
        return np.concatenate([np.asarray(_residuals(*_arguments(part, self.known, s)), float) for part, s in pairs])

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        return np.clip(np.nan_to_num(self.raw_residuals(theta), nan=LOST, posinf=LOST, neginf=-LOST), -LOST, LOST)

    def jacobian(self, theta: np.ndarray) -> np.ndarray:
        n, nx = self.n_parameters, self.known.nx
        rows = []
        for i, (part, stretch) in enumerate(zip(self.parts(theta), self.stretches, strict=True)):
            own = np.nan_to_num(np.asarray(_jacobian(*_arguments(part, self.known, stretch)), float))
            full = np.zeros((len(own), len(theta)))
            full[:, :n], full[:, n + nx * i : n + nx * (i + 1)] = own[:, :n], own[:, n:]
            rows.append(full)
        return np.concatenate(rows)

    def finish(self, theta: np.ndarray, residuals: np.ndarray, jacobian: np.ndarray) -> KnownStart:
        """The fitted equations with deviations, and states scaled to zero mean and unit deviation."""
        n = self.n_parameters
        pairs = zip(self.parts(theta), self.stretches, strict=True)
        states = [np.asarray(_states(*_arguments(part, self.known, s)), float)[s.places] for part, s in pairs]
        every = np.concatenate(states)
        mean, std = every.mean(axis=0), _positive(every.std(axis=0))
        known = eqx.tree_at(lambda k: k.free, self.known, jnp.asarray(theta[:n]))
        deviation = np.full(n, np.nan)
        if not known.trainable:
            counted = sum(int(np.count_nonzero(s.weight)) for s in self.stretches)
            slopes = np.abs(known.slopes())  # zero at a bound: nothing is known of the deviation there
            free = free_deviations(residuals, jacobian, counted)[:n]
            deviation = np.multiply(slopes, free, where=slopes > 0, out=deviation)
        known = eqx.tree_at(lambda k: (k.units.x_mean, k.units.x_std, k.units.deviation), known, (mean, std, deviation))
        return KnownStart(known, tuple((part - mean) / std for part in states))


def free_deviations(
    residuals: Float[np.ndarray, "m"], jacobian: Float[np.ndarray, "m n"], samples: int
) -> Float[np.ndarray, "n"]:
    """Standard deviations of least-squares estimates, `sqrt(diag(s^2 (J'J)^-1))`; infinite where nothing is seen.

    Args:
        residuals: at the minimum.
        jacobian: their derivatives with respect to the estimates.
        samples: how many residuals were measured.

    Returns:
        The deviations.
    """
    size = _positive(np.linalg.norm(jacobian, axis=0))
    _, strength, rows = np.linalg.svd(jacobian / size, full_matrices=False)
    seen = strength > UNSEEN * strength[0]
    variance = np.sum(residuals**2) / max(samples - len(size), 1)
    spread = np.sqrt(variance * np.sum((rows[seen] / strength[seen, None]) ** 2, axis=0)) / size
    unseen = np.any(np.abs(rows[~seen]) > np.sqrt(UNSEEN), axis=0)
    return np.where(unseen, np.inf, spread)


def _positive(deviations: np.ndarray) -> np.ndarray:
    """Deviations to divide by: one where nothing moves."""
    return np.where(np.isfinite(deviations) & (deviations > 0), deviations, 1.0)


def _arguments(theta: np.ndarray, known: KnownPart, s: _Stretch) -> tuple[Any, ...]:
    return (jnp.asarray(theta), known, s.u, s.y, s.weight, s.dt, s.integrator)


@eqx.filter_jit
def _states(
    theta: Array, known: KnownPart, u: Array, y: Array, weight: Array, dt: Array, integrator: FixedStep
) -> Array:
    n = len(known.free)
    known = eqx.tree_at(lambda k: k.free, known, theta[:n])
    return rollout_scan(known.derivative, theta[n:][None], u[:, None], dt[:, None], integrator)[:, 0]


@eqx.filter_jit
def _residuals(
    theta: Array, known: KnownPart, u: Array, y: Array, weight: Array, dt: Array, integrator: FixedStep
) -> Array:
    x = _states(theta, known, u, y, weight, dt, integrator)
    known = eqx.tree_at(lambda k: k.free, known, theta[: len(known.free)])
    return (weight * (known.output(x, u) - y)).ravel()


_jacobian = eqx.filter_jit(jax.jacfwd(_residuals))
