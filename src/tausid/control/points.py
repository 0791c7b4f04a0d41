"""Operating points: where a model is at rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tausid.errors import ConfigError, DataError
from tausid.export.description import Description, describe
from tausid.export.interpreter import evaluate, jacobian
from tausid.model.ensembles import AnyModel, EnsembleModel
from tausid.model.rest import AT_REST, find_rest
from tausid.shapes import ArrayLike, Float

# Other equilibria are looked for from this many random states of twice unit size, always the same ones.
STARTS = 12
# Equilibria closer than this, in normalized states and inputs, are one.
SAME = 1e-3
# A Jacobian with a smaller ratio of its singular values than this is singular: the equilibrium is not isolated.
SINGULAR = 1e-7


@dataclass(frozen=True, eq=False)
class OperatingPoint:
    """A state in which a model stays at rest.

    Args:
        x: the state, normalized.
        u: the inputs in physical units.
        y: the outputs in physical units.
        stable: whether the model comes back after a small disturbance.
        isolated: whether there is no other equilibrium right beside it with the same givens; an integrator has many.
        others: further equilibria with the same givens, the nearest first.
    """

    x: Float[np.ndarray, "nx"]
    u: Float[np.ndarray, "nu"]
    y: Float[np.ndarray, "ny"]
    stable: bool
    isolated: bool
    others: tuple[OperatingPoint, ...] = ()


def operating_point(
    model: AnyModel, *, u: ArrayLike | None = None, y: ArrayLike | None = None, near: ArrayLike | None = None
) -> OperatingPoint:
    """The equilibrium for given inputs, or for given outputs with inputs to be found.

    Where there are several, the one nearest to `near` is given, with the others in `others`.

    Args:
        model: the model, or an ensemble.
        u: inputs in physical units; NaN for those to be found.
        y: outputs in physical units; NaN where any will do.
        near: a state to look for the nearest equilibrium from; by default the mean state of training.

    Returns:
        The operating point.

    Raises:
        ConfigError: neither inputs nor outputs are given, or wrong numbers of them, or nothing is left to be found.
        DataError: there is no equilibrium with these givens.
    """
    first, *others = _points(model, u, y, near, every=True)
    return replace(first, others=tuple(others))


def nearest_point(
    model: AnyModel, u: ArrayLike | None, y: ArrayLike | None, near: ArrayLike | None = None
) -> OperatingPoint:
    """The equilibrium that is found first, without a search for others."""
    return _points(model, u, y, near, every=False)[0]


def _points(
    model: AnyModel, u: ArrayLike | None, y: ArrayLike | None, near: ArrayLike | None, *, every: bool
) -> list[OperatingPoint]:
    d = describe(model)
    given_u, given_y = _given("u", u, d.nu), _given("y", y, d.ny)
    wanted = int(np.isfinite(given_y).sum())
    if wanted + np.isfinite(given_u).sum() == 0 and d.nu:
        raise ConfigError("`operating_point` must be given inputs as `u`, or outputs as `y`; got neither. Give one.")
    if wanted > np.isnan(given_u).sum():
        raise ConfigError(
            f"inputs to be found must be as many as given outputs; got {np.isnan(given_u).sum()} for {wanted}. "
            "Leave `u` out, or make some of its entries NaN."
        )
    start = d.x0 if near is None else np.asarray(near, float)
    found, isolated = _search(d, model, given_u, given_y, start, every)
    if not found:
        raise DataError(
            f"the model must come to rest with {_words(d, given_u, given_y)}; no such state was found. Give values "
            "that occur in training, or a state `near` it."
        )
    return [_point(d, z, isolated) for z in found]


def _given(name: str, values: ArrayLike | None, size: int) -> np.ndarray:
    given = np.full(size, np.nan) if values is None else np.atleast_1d(np.asarray(values, float))
    if given.shape != (size,):
        raise ConfigError(f"`{name}` must have {size} entries; got shape {given.shape}. Give one per channel.")
    return given


def _words(d: Description, u: np.ndarray, y: np.ndarray) -> str:
    pairs = [*zip(d.input_names, u, strict=True), *zip(d.output_names, y, strict=True)]
    return ", ".join(f"{name} = {value:g}" for name, value in pairs if np.isfinite(value)) or "no inputs"


def _search(
    d: Description, model: AnyModel, u: np.ndarray, y: np.ndarray, start: np.ndarray, every: bool
) -> tuple[list[np.ndarray], bool]:
    """Different `[x; u]` at rest, the nearest to the start first, if any; and whether they are isolated."""
    free = np.isnan(u)
    scaling = model.scaling
    f, g, whole = _functions(d, model, np.where(free, 0.0, u), free)
    random = np.random.default_rng(0).normal(0.0, 2.0, (STARTS, d.nx + int(free.sum())))
    target = (y - scaling.y_mean) / scaling.y_std
    asked = np.isfinite(target)
    found: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for guess in [np.concatenate([start, np.zeros(int(free.sum()))]), *random]:
            if not np.isfinite([*f(guess), *g(guess)]).all():
                continue
            z = find_rest(f, g, guess, target)[0]
            z, rate, reached = find_rest(f, g, z, target)  # once more from there: the guess draws no longer
            off = np.max(np.abs([*rate, *(reached - target)[asked]]))
            if off <= AT_REST and all(np.max(np.abs(z - other)) > SAME for other in found):
                found.append(z)
            if len(found) == 1:
                isolated = _isolated(lambda z: np.concatenate([f(z), g(z)[asked]]), found[0])
                if not (every and isolated):  # of a whole line of them the nearest is enough
                    return [whole(found[0])], isolated
    first, *others = found or [np.zeros(0)]
    others.sort(key=lambda z: float(np.linalg.norm(z[: d.nx] - start)))
    return ([whole(z) for z in (first, *others)] if found else []), True


def _functions(
    d: Description, model: AnyModel, u: np.ndarray, free: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """f and g of `[x; free inputs]` in normalized units, and `[x; u]` with inputs in physical ones."""
    members = model.members if isinstance(model, EnsembleModel) else (model,)
    tau = np.concatenate([np.broadcast_to(np.asarray(m.tau, float), m.state_space.nx) for m in members])

    def whole(z: np.ndarray) -> np.ndarray:
        inputs = u.copy()
        inputs[free] = d.u_mean[free] + d.u_std[free] * z[d.nx :]
        return np.concatenate([z[: d.nx], inputs])

    def f(z: np.ndarray) -> np.ndarray:
        return np.asarray(tau * evaluate(d.f, *np.split(whole(z), [d.nx])))

    def g(z: np.ndarray) -> np.ndarray:
        return np.asarray((evaluate(d.g, *np.split(whole(z), [d.nx])) - model.scaling.y_mean) / model.scaling.y_std)

    return f, g, whole


def _isolated(conditions: Callable[[np.ndarray], np.ndarray], z: np.ndarray) -> bool:
    """Whether the conditions determine z: their derivatives, by differences, have full rank."""
    slopes = np.array([(conditions(z + h) - conditions(z - h)) / 2e-6 for h in 1e-6 * np.eye(len(z))])
    return bool(np.linalg.matrix_rank(slopes, rtol=SINGULAR) == len(z))


def _point(d: Description, z: np.ndarray, isolated: bool) -> OperatingPoint:
    x, u = np.split(z, [d.nx])
    stable = bool(np.linalg.eigvals(jacobian(d.f, x, u)[0]).real.max() < 0.0)
    return OperatingPoint(x, u, evaluate(d.g, x, u), stable, isolated)
