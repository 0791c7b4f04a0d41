"""Where a trajectory begins: from past samples, or as a parameter."""

from __future__ import annotations

import numpy as np

from tausid.engine.networks import MLP, Network
from tausid.engine.tree import Tree, namespace, static
from tausid.shapes import Array, Float, Int

# Training states that a model keeps, near which the initial state of a new record may be.
SEEN_STATES = 128


class Encoder(Tree):
    """`x_k = e(u_{k-1}, ..., u_{k-nb}, y_{k-1}, ..., y_{k-na})`, the paper's encoder network.

    On an irregular clock the past samples are interpolated at i median steps ago, and the network sees `lag`, too: how
    much longer ago than that the i-th sample was, in median steps.

    Args:
        network: `e`; its inputs are the past inputs, then the past outputs, then the lags, each from old to new.
        na: number of past outputs.
        nb: number of past inputs.
        sees_time: whether the network sees the lags.
    """

    network: Network | MLP
    na: int = static()
    nb: int = static()
    sees_time: bool = static(default=False)

    @property
    def n_past(self) -> int:
        """Samples needed before the first simulated one: as many as the longer of both, max(na, nb)."""
        return max(self.na, self.nb)

    def __call__(
        self,
        past_u: Float[Array, "n_past B nu"],
        past_y: Float[Array, "n_past B ny"],
        record: Int[Array, "B"],
        lag: Float[Array, "n_past B"] | None = None,
    ) -> Float[Array, "B nx"]:
        """The state at the sample after the past ones."""
        n, xp = self.n_past, namespace(past_u, past_y)
        seen = [*past_u[n - self.nb :], *past_y[n - self.na :]]  # each (B, channels)
        if self.sees_time and lag is not None:
            seen.append(lag.T)
        batch = past_y.shape[1]
        return self.network(xp.concatenate(seen, axis=-1) if seen else xp.zeros((batch, 0), past_y.dtype))


class FreeState(Tree):
    """The initial state of each training record as a parameter of the optimisation (eq. 3).

    That of a new record is estimated from its first samples, together with what training knows of states:
    `|tightness (x0 - expected)|^2` counts as much as the squared normalized errors of the outputs. Or, where that makes
    the samples more likely, it is near states that were seen in training (`state_priors`).

    Args:
        x0: one state per training record.
        expected: mean of the states along the training records.
        tightness: how closely they lie around it, for the noise of the outputs; zero where that is not known.
        seen: some of these states, in time, record by record; zero where none are known.
        near_seen: whether a new record may begin near one of them; not where a model is judged by its own records or by
            parts held out of them, which do so whether or not their first samples show the state.
    """

    x0: Float[Array, "n_records nx"]
    expected: Float[Array, "nx"]
    tightness: Float[Array, "nx nx"]
    seen: Float[Array, "n_seen nx"]
    near_seen: bool = static(default=True)

    @classmethod
    def unknown(cls, x0: Float[np.ndarray, "n_records nx"]) -> FreeState:
        """Initial states of records; nothing is known of other states."""
        nx, dtype = x0.shape[1], x0.dtype
        return cls(x0, np.zeros(nx, dtype), np.zeros((nx, nx), dtype), np.zeros((SEEN_STATES, nx), dtype))

    @property
    def n_past(self) -> int:
        """None: the state needs no past."""
        return 0

    def __call__(
        self,
        past_u: Float[Array, "n_past B nu"],
        past_y: Float[Array, "n_past B ny"],
        record: Int[Array, "B"],
        lag: Float[Array, "n_past B"] | None = None,
    ) -> Float[Array, "B nx"]:
        """The state of each window's record."""
        return namespace(self.x0, record).asarray(self.x0)[record]


InitialState = Encoder | FreeState
