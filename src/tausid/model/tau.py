"""The normalization constant tau: positive seconds, one for all states or one per state, fixed or trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tausid.engine.tree import Tree, namespace, static
from tausid.errors import ConfigError
from tausid.shapes import Array, Float

# Smallest trained tau, as a share of its start value: the epsilon of eq. 8.
EPSILON = 1e-6


class Tau(Tree):
    """`tau = max(epsilon, factor) * start`, with `factor = 1` at the start (eq. 8).

    What is trained is the dimensionless factor, so that the unit of time does not change the training:
    the paper, too, starts its trained parameter at 1.

    Args:
        seconds: start value in seconds: a number, or one per state.
        trainable: whether training may change it.
        source: where the value came from, in words.

    Raises:
        ConfigError: a value is not a positive number.

    Example:
        >>> Tau(74.0).now
        74.0
    """

    factor: Float[Array, ""] | Float[Array, "nx"]
    start: Float[np.ndarray, ""] | Float[np.ndarray, "nx"]  # never trained
    trainable: bool = static()
    source: str = static()

    def __init__(
        self, seconds: float | Sequence[float] | np.ndarray, *, trainable: bool = False, source: str = "given"
    ) -> None:
        try:
            values = np.asarray(seconds, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.array(np.nan)
        if values.ndim > 1 or values.size == 0 or not np.all(np.isfinite(values) & (values > 0)):
            raise ConfigError(
                f"`tau` must be a positive number of seconds, or one per state; got {seconds!r}. "
                "A tenth to thirty times the sampling time is a common start."
            )
        own = {"factor": np.ones(values.shape), "start": values, "trainable": trainable, "source": source}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def now(self) -> float | tuple[float, ...]:
        """The value now, in seconds, as plain numbers: the start value exactly where it was not trained."""
        values = np.maximum(EPSILON, np.asarray(self.factor, float)) * self.start
        return float(values) if values.ndim == 0 else tuple(values.tolist())

    @property
    def seconds(self) -> Float[Array, ""] | Float[Array, "nx"]:
        """The value now, in seconds, for computation and differentiation."""
        xp = namespace(self.factor)
        return xp.maximum(EPSILON, self.factor) * xp.asarray(self.start, self.factor.dtype)
