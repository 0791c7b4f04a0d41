"""A model that is stepped from outside, one sample at a time."""

from __future__ import annotations

import numpy as np

from tausid.errors import DivergenceError
from tausid.export.delays import DelayLine
from tausid.export.description import describe
from tausid.export.interpreter import evaluate, step
from tausid.model.ensembles import AnyModel
from tausid.shapes import ArrayLike, Float


class Simulator:
    """A plant for a loop of one's own: it keeps the state `x`, the time `t` in seconds and the outputs `y`.

    Args:
        model: the model, or an ensemble.
        x0: the state to begin from; by default the mean of those seen in training.
        u0: the inputs before the first step, in physical units, on which `y` depends at the start; by default the
            means of training.
    """

    def __init__(self, model: AnyModel, *, x0: ArrayLike | None = None, u0: ArrayLike | None = None) -> None:
        self.description = d = describe(model)
        self.x: Float[np.ndarray, "nx"] = d.x0.copy() if x0 is None else np.asarray(x0, float)
        self.t = 0.0
        self._line = DelayLine(d)
        u = d.u_mean if u0 is None else np.atleast_1d(np.asarray(u0, float))
        self.y: Float[np.ndarray, "ny"] = evaluate(d.g, self.x, u)

    def step(self, u: ArrayLike, dt: float, u_next: ArrayLike | None = None) -> Float[np.ndarray, "ny"]:
        """Let `dt` seconds pass.

        Args:
            u: the inputs now, in physical units; they are held, unless `u_next` says where they go.
            dt: seconds, any at each step.
            u_next: the inputs then, for those with first-order hold.

        Returns:
            The outputs then.

        Raises:
            DivergenceError: the model diverged.
        """
        now = np.atleast_1d(np.asarray(u, float))
        then = now if u_next is None else np.atleast_1d(np.asarray(u_next, float))
        acting = self._line.acting(now)
        self._line.remember(now, dt)
        acting_then = self._line.acting(then)
        self.x = step(self.description, self.x, acting, acting_then, dt)
        self.t += dt
        self.y = evaluate(self.description.g, self.x, acting_then)
        if not np.isfinite(self.x).all():
            raise DivergenceError(
                f"the simulator must stay finite; it diverged at {self.t:g} s. Check inputs and units."
            )
        return self.y
