"""The contract of second-order training: the squared simulation error of records and its normal equations.

Two implementations pass one test grid: `compiled.CompiledError`, for what the library supports, and
`scan_error.ScanError`, by JAX for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from tausid.shapes import Float

if TYPE_CHECKING:
    from tausid.engine.compiled import Samples


@dataclass(frozen=True, eq=False)
class Normal:
    """The normal equations of a Gauss-Newton step in the parameters theta and the initial state of each record.

    Args:
        cost: mean squared error; infinite where a simulation diverges.
        H: `J'J` of theta.
        G: `J'J` between each initial state and theta.
        K: `J'J` of each initial state; different ones do not touch.
        h: `J'r` of theta.
        k: `J'r` of each initial state.
    """

    cost: float
    H: Float[np.ndarray, "P P"]
    G: Float[np.ndarray, "B nx P"]
    K: Float[np.ndarray, "B nx nx"]
    h: Float[np.ndarray, "P"]
    k: Float[np.ndarray, "B nx"]


@runtime_checkable
class SquaredError(Protocol):
    """The mean squared error of the simulated outputs over all measured ones, normalized and weighted.

    A function of the parameters theta and of the initial state x0 of each record, in double precision.
    """

    @property
    def samples(self) -> Samples:
        """The records."""

    def cost(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]) -> float:
        """The mean squared error; infinite where a simulation diverges."""

    def normal(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], *, only_states: bool = False
    ) -> Normal:
        """The normal equations; those of theta are empty where `only_states` are asked for."""

    def states(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]) -> Float[np.ndarray, "N nx"]:
        """States at the points of all records, one after the other; NaN from where one has diverged."""

    def residuals(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]
    ) -> list[Float[np.ndarray, "_ ny"]]:
        """Simulated minus measured outputs of each record, weighted: the cost is the sum of their squares.

        NaN where nothing was measured.
        """

    def weighted(self, factors: Float[np.ndarray, "N ny"]) -> SquaredError:
        """The same error with each of these residuals times a positive factor."""

    def cut(self, length: int) -> SquaredError:
        """The same error over stretches of about this length at most, each with an initial state of its own."""
