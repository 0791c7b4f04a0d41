"""Discrete and continuous time: exact conversion for held inputs, and which poles have no counterpart."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import expm, logm

from tausid.shapes import Bool, Float

# What the input does between samples. The names are those of `engine/holds.py`, which needs JAX; this must not.
HOLDS = ("zero", "first")
# A mode that keeps less than this share of itself over one sample is a pole at zero, as far as data can tell.
ZERO_POLE = 1e-3
# Pairs whose angle is within this share of pi of the negative real axis count as being on it.
NEGATIVE_ANGLE = 1e-2


def lacks_counterpart(poles: np.ndarray) -> Bool[np.ndarray, "n"]:
    """Which discrete poles have no real continuous-time counterpart: at zero, or on the negative real axis."""
    return (np.abs(poles) < ZERO_POLE) | (np.abs(np.angle(poles)) > (1.0 - NEGATIVE_ANGLE) * np.pi)


def to_continuous(
    Ad: Float[np.ndarray, "nx nx"],
    Bd: Float[np.ndarray, "nx nu"],
    Cd: Float[np.ndarray, "ny nx"],
    Dd: Float[np.ndarray, "ny nu"],
    *,
    ts: float,
    hold: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The continuous-time system whose held-input discretization is the given one, exactly.

    `A = logm(Ad) / ts`; zero-order hold: `Bd = ts phi1 B`; first-order hold: `Bd = ts phi1^2 B` and
    `Dd = D + C ts phi2 B`, with `phi1 = (e^Z - I) / Z`, `phi2 = (e^Z - I - Z) / Z^2`, `Z = ts A`.
    This inverts `scipy.signal.cont2discrete`.
    """
    with warnings.catch_warnings():
        # Nearly repeated poles cost digits of the logarithm; scipy warns from 1e-13 on, which no data show.
        warnings.simplefilter("ignore", RuntimeWarning)
        A = np.real(logm(Ad)) / ts  # the principal logarithm of such a real matrix is real
    phi1, phi2 = _phi(A * ts)
    if hold == "zero":
        return A, np.linalg.solve(phi1, Bd) / ts, Cd, Dd
    B = np.linalg.solve(phi1 @ phi1, Bd) / ts
    return A, B, Cd, Dd - Cd @ phi2 @ B * ts


def state_offset(
    A: Float[np.ndarray, "nx nx"], B: Float[np.ndarray, "nx nu"], *, ts: float, hold: str
) -> Float[np.ndarray, "nx nu"]:
    """The matrix E of `x = xi + E u` between the continuous state x and the discrete recursion's state xi.

    With a first-order hold the next input enters the step; the recursion in standard form then runs on
    `xi = x - ts phi2 B u`. With a zero-order hold both states are one.
    """
    return np.zeros_like(B) if hold == "zero" else _phi(A * ts)[1] @ B * ts


def _phi(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = len(Z)
    augmented = np.zeros((3 * n, 3 * n))
    augmented[:n, :n] = Z
    augmented[:n, n : 2 * n] = augmented[n : 2 * n, 2 * n :] = np.eye(n)
    exponential = expm(augmented)
    return exponential[:n, n : 2 * n], exponential[:n, 2 * n :]
