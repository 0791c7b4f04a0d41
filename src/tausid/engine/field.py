"""The right-hand side of the state equation, with everything about tau already decided."""

from __future__ import annotations

from tausid.engine.networks import Network
from tausid.engine.tree import Tree, namespace
from tausid.shapes import Array, Float


class VectorField(Tree):
    """`dx/dt = diag(rate) network([x; u])`, with `rate = 1 / tau` in 1/s (eq. 4).

    Args:
        network: the state network `f`.
        rate: one number for all states, or one per state.
    """

    network: Network
    rate: Float[Array, ""] | Float[Array, "nx"]

    def __call__(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B nx"]:
        """The state derivative per second."""
        return self.rate * self.network(namespace(x, u).concatenate([x, u], axis=-1))
