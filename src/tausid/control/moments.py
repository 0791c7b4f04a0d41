"""How a function moves a mean and a covariance: its linear part, and the covariance that this leaves out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Share of the middle one of the points that stand for a distribution.
MIDDLE = 1.0 / 3.0


def spread(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, P: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The unscented transform: mean of a function, its slope by regression, and the covariance that is not linear.

    The function is of rows: 2 nx + 1 points with mean x and covariance P. None has a negative weight, so that
    covariances stay positive.
    """
    n = len(x)
    values, vectors = np.linalg.eigh(P)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    ways = np.sqrt(n / (1.0 - MIDDLE)) * np.vstack([np.zeros(n), np.eye(n), -np.eye(n)])  # (2 n + 1, n)
    weights = np.array([MIDDLE, *[(1.0 - MIDDLE) / (2 * n)] * (2 * n)])[:, None]
    moved = function(x + ways @ root.T)
    mean = np.sum(weights * moved, axis=0)
    along = (weights * (moved - mean)).T @ ways  # slope times root
    left = moved - mean - ways @ along.T
    return mean, along @ np.linalg.pinv(root), (weights * left).T @ left


def gain(P: np.ndarray, C: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Kalman gain, and the covariance after a sample in the form that stays positive definite."""
    K = np.linalg.solve(C @ P @ C.T + R, C @ P).T
    rest = np.eye(len(P)) - K @ C
    return K, rest @ P @ rest.T + K @ R @ K.T
