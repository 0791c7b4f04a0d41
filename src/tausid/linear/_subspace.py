"""Start values of the poles: the past-output MOESP subspace method, and what makes its result stable.

Only A and C are taken from it: B, D and the initial states follow from them by linear least squares.
Reference: M. Verhaegen, "Identification of the deterministic part of MIMO state space models given in
innovations form from input-output data", Automatica 30(1), 1994.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.shapes import Bool, Float

# Columns of the Hankel matrices that are kept: a start value needs no more, and a long record gets no slower.
MAX_COLUMNS = 20_000
# Singular values below this share of the outputs' own size are rounding errors.
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Signals:
    """One record in normalized units: `u (N, nu)`, `y (N, ny)` with NaN where missing."""

    u: Float[np.ndarray, "N nu"]
    y: Float[np.ndarray, "N ny"]

    @property
    def filled(self) -> Float[np.ndarray, "N ny"]:
        """Outputs with missing samples interpolated in time; good enough for a start value."""
        index = np.arange(len(self.y))
        known = ~np.isnan(self.y)
        columns = [
            np.interp(index, index[k], y[k]) if k.any() else np.zeros(len(index))
            for y, k in zip(self.y.T, known.T, strict=True)
        ]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Subspace:
    """Singular values and left singular vectors of the projected future outputs, and their horizon."""

    values: Float[np.ndarray, "r"]  # singular values relative to the size of the future outputs, descending
    vectors: Float[np.ndarray, "rows r"]  # left singular vectors, shape (horizon ny, ...)
    excitation: int  # rank of the future inputs; a sine has two
    ny: int  # number of outputs

    @property
    def rank(self) -> int:
        """How many states the data can carry.

        As many as singular values stand above rounding errors. None do when the outputs follow from the
        future inputs alone, as in the steady state of a few sines; then as many as the input has freedoms.
        """
        return int(np.sum(self.values > RANK_TOLERANCE)) or self.excitation

    def poles_and_outputs(self, nx: int) -> tuple[Float[np.ndarray, "nx nx"], Float[np.ndarray, "ny nx"]]:
        """A and C of order `nx`, from the shift of the observability matrix."""
        observability = self.vectors[:, :nx] * np.sqrt(self.values[:nx])
        upper, lower = observability[: -self.ny], observability[self.ny :]
        return np.linalg.lstsq(upper, lower, rcond=None)[0], observability[: self.ny]


def longest_horizon(signals: Sequence[Signals]) -> int:
    """The most block rows per half for which the Hankel matrices are not taller than they are wide."""
    channels = signals[0].u.shape[1] + signals[0].y.shape[1]
    lengths = np.array([len(s.u) for s in signals])
    horizons = np.arange(1, lengths.max() // 2 + 1)
    columns = np.maximum(lengths[:, None] - 2 * horizons + 1, 0).sum(axis=0)
    return int(np.sum(columns >= 2 * horizons * channels))


def decompose(signals: Sequence[Signals], horizon: int) -> Subspace:
    """Project the future outputs onto what the past says and the future inputs do not."""
    blocks = [_hankel(s, horizon) for s in signals if len(s.u) >= 2 * horizon]
    data = np.concatenate(blocks, axis=1)
    data = data[:, :: -(-data.shape[1] // MAX_COLUMNS)]
    rows_u, rows_y = horizon * signals[0].u.shape[1], horizon * signals[0].y.shape[1]
    factor = np.transpose(np.linalg.qr(data.T, mode="r"))  # (rows, rows), lower triangular
    past = slice(rows_u, 2 * rows_u + rows_y)
    vectors, values, _ = np.linalg.svd(factor[-rows_y:, past], full_matrices=False)
    inputs = np.linalg.svd(factor[:rows_u, :rows_u], compute_uv=False)
    excitation = int(np.sum(inputs > RANK_TOLERANCE * inputs[0]))
    size = np.linalg.norm(factor[-rows_y:])  # zero if the few known outputs are all at the mean
    return Subspace(values / (size if size > 0 else 1.0), vectors, excitation, signals[0].y.shape[1])


def _hankel(signal: Signals, horizon: int) -> Float[np.ndarray, "rows columns"]:
    """Future inputs, past inputs, past outputs, future outputs, each as a block Hankel matrix."""
    u, y = _delayed(signal.u, 2 * horizon), _delayed(signal.filled, 2 * horizon)
    rows_u, rows_y = horizon * signal.u.shape[1], horizon * signal.y.shape[1]
    return np.concatenate([u[rows_u:], u[:rows_u], y[:rows_y], y[rows_y:]])


def _delayed(values: Float[np.ndarray, "N n"], rows: int) -> Float[np.ndarray, "rows_n columns"]:
    windows = np.lib.stride_tricks.sliding_window_view(values, rows, axis=0)  # (columns, n, rows)
    return windows.transpose(2, 1, 0).reshape(rows * values.shape[1], -1)


def spread_poles(nx: int, ny: int, samples: int) -> tuple[Float[np.ndarray, "nx nx"], Float[np.ndarray, "ny nx"]]:
    """A start that needs no data: time constants evenly spread on a log scale, seen by all outputs."""
    constants = np.geomspace(2.0, max(samples / 5.0, 4.0), nx) if nx > 1 else np.array([5.0])
    return np.diag(np.exp(-1.0 / constants)), np.ones((ny, nx))


def slow_poles(nx: int, ny: int, samples: int) -> tuple[Float[np.ndarray, "nx nx"], Float[np.ndarray, "ny nx"]]:
    """Time constants an octave apart, the slowest as slow as a record can show, seen by all outputs."""
    constants = max(samples / 5.0, 4.0) * 0.5 ** np.arange(nx)
    return np.diag(np.exp(-1.0 / constants)), np.ones((ny, nx))


def move_inside(A: Float[np.ndarray, "n n"], radius: float) -> Float[np.ndarray, "n n"]:
    """Mirror eigenvalues outside the unit circle into it, `p -> 1 / conj(p)`, and keep all within a radius."""
    poles, modes = np.linalg.eig(A)
    modulus = np.abs(poles)
    inside = np.where(modulus > 1.0, 1.0 / np.maximum(modulus, 1.0), modulus)
    moved = poles * np.minimum(inside, radius) / np.maximum(modulus, np.finfo(float).tiny)
    return np.linalg.lstsq(modes.T, (modes * moved).T, rcond=None)[0].T.real


def keep_modes(
    A: Float[np.ndarray, "n n"], C: Float[np.ndarray, "ny n"], keep: Bool[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "m m"], Float[np.ndarray, "ny m"]]:
    """Restrict A and C to the modes marked in `keep` (modal truncation)."""
    _, modes = np.linalg.eig(A)
    kept = modes[:, keep]
    basis = np.linalg.svd(np.concatenate([kept.real, kept.imag], axis=1))[0][:, : int(np.sum(keep))]
    return basis.T @ A @ basis, C @ basis
