"""States at rest: equilibria of a model for an input, and states with given outputs that move as little as can be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tausid.model.state_space import StateSpace
from tausid.shapes import Float

# Weight of given outputs beside the normalized derivative, and of the way from the guess: where several states are at
# rest, the nearest is taken.
OUTPUTS, NEAR = 1e3, 1e-4
# Normalized derivatives and errors of outputs up to this are none.
AT_REST = 1e-3


def find_rest(
    f: Callable[[np.ndarray], np.ndarray],
    g: Callable[[np.ndarray], np.ndarray],
    guess: Float[np.ndarray, "n"],
    y: Float[np.ndarray, "ny"] | None = None,
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "nx"], Float[np.ndarray, "ny"]]:
    """The x near a guess with `f(x) = 0`, or with outputs y (NaN where any will do) and f as small as can be.

    All in normalized units, with what f and g are there.
    """
    from scipy.optimize import least_squares  # late: it takes a while to import

    given = np.zeros(0, int) if y is None else np.flatnonzero(~np.isnan(y))
    wanted = np.zeros(0) if y is None else y[given]

    def gap(x: np.ndarray) -> np.ndarray:
        return np.concatenate([f(x), OUTPUTS * (g(x)[given] - wanted), NEAR * (x - guess)])

    found = least_squares(gap, guess, x_scale=1.0).x
    return found, f(found), g(found)


def at_inputs(
    space: StateSpace, u: Float[np.ndarray, "nu"]
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """The normalized derivative and the output as functions of the state."""
    tau = np.asarray(space.tau.now, float)
    return (
        lambda x: np.asarray(tau * np.asarray(space.derivative(x, u), float)),
        lambda x: np.asarray(space.output(x, u), float),
    )
