"""The equations of the model, and limits of its outputs."""

from __future__ import annotations

import numpy as np

from tausid.engine.field import VectorField
from tausid.engine.networks import MLP, Network
from tausid.engine.tree import Tree, namespace, static
from tausid.model.initial import InitialState
from tausid.model.physics import KnownPart
from tausid.model.tau import Tau
from tausid.shapes import Array, Float


class CorrectedField(Tree):
    """`dx/dt = known(x, u) + diag(1/tau) f(x, u)`: known equations, and what corrects them.

    Args:
        known: the known equations.
        correction: the normalized network.
    """

    known: KnownPart
    correction: VectorField

    def __call__(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B nx"]:
        """The state derivative per second."""
        return self.known.derivative(x, u) + self.correction(x, u)


class StateSpace(Tree):
    """`dx/dt = diag(1/tau) f(x, u)`, `y = g(x, u)`, in normalized units and seconds (eqs. 4 and 12).

    With known equations, f and g are what is added to these.

    Args:
        f: state network, from `[x; u]` to nx.
        g: output network, from `[x; u]` to ny, or from `x` where there is no feedthrough.
        initial: where trajectories begin.
        tau: the normalization constant.
        dae: the DAE network d(x, u) that only its penalty sees, or None.
        limits: lowest and highest value of each output, normalized; None where there are none.
        physics: known equations, or None.
    """

    f: Network
    g: Network
    initial: InitialState
    tau: Tau
    dae: MLP | None = None
    limits: tuple[tuple[float, float], ...] | None = static(default=None)
    physics: KnownPart | None = None

    @property
    def nx(self) -> int:
        """Number of states."""
        return self.f.linear.shape[0]

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return self.f.linear.shape[1] - self.nx

    @property
    def ny(self) -> int:
        """Number of outputs."""
        return self.g.linear.shape[0]

    @property
    def feedthrough(self) -> bool:
        """Whether g sees the inputs."""
        return self.g.linear.shape[1] > self.nx or self.nu == 0

    @property
    def A(self) -> Float[Array, "nx nx"]:
        """The linear part of f that acts on the state."""
        return self.f.linear[:, : self.nx]

    @property
    def field(self) -> VectorField | CorrectedField:
        """The right-hand side of the state equation, for a rollout."""
        network = VectorField(self.f, 1.0 / self.tau.seconds)
        return network if self.physics is None else CorrectedField(self.physics, network)

    def derivative(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B nx"]:
        """The state derivative per second, `diag(1/tau) f(x, u)`."""
        return self.field(x, u)

    def output(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B ny"]:
        """The output, `g(x, u)`, or `g(x)` where there is no feedthrough; within its limits where it has some."""
        y = self.g(namespace(x, u).concatenate([x, u], axis=-1) if self.feedthrough else x)
        return self.limit(self.with_known_output(y, x, u))

    def with_known_output(
        self, y: Float[Array, "*B ny"], x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]
    ) -> Float[Array, "*B ny"]:
        """The outputs of g plus those of known equations, where there are any."""
        return y if self.physics is None else y + self.physics.output(x, u)

    def limit(self, y: Float[Array, "*B ny"]) -> Float[Array, "*B ny"]:
        """Outputs within their limits, with the derivative of outputs without.

        An output beyond its limit, where a smaller one was measured, still has a way back; where the limit itself was
        measured there is no error, and so no gradient.
        """
        if self.limits is None:
            return y
        ends = np.asarray(self.limits, y.dtype).T
        if namespace(y) is np:
            return np.clip(y, *ends)
        from tausid.engine.clipping import clip_straight

        return clip_straight(y, *ends)
