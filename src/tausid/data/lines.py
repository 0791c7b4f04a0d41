"""The few sines that a signal consists of, at their own frequencies: what a record of broken periods determines.

Over a broken period the mean of a sine is not its centre, the mean squares of it and of its derivative are not those of
the sine, and its DFT leaks. Where a signal is a few sines to the last digits, all of this is known without the edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tausid.shapes import Complex, Float

# Samples that the frequencies are found in, and the most that one row of the Hankel matrix is delayed by.
SAMPLES, ROWS = 2_000, 40
# Singular values below this share of the largest are rounding errors.
RANK_TOLERANCE = 1e-10
# A sine and a constant take this many rows.
LEAST_ROWS = 6
# A mode that turns by less than this angle over all samples is the constant.
STILL = 1e-3
# The sines must leave no more than this share of a signal's deviation, and grow or decay by no more per sample.
EXACT = 1e-6


@dataclass(frozen=True, eq=False)
class Lines:
    """A signal as `v[k] = constant + Re sum_i amplitude_i exp(j angle_i k)`.

    Args:
        angles: frequencies in radians per sample, between 0 and pi, shape (lines,).
        constant: shape (n,).
        amplitudes: shape (lines, n).
    """

    angles: Float[np.ndarray, "lines"]
    constant: Float[np.ndarray, "n"]
    amplitudes: Complex[np.ndarray, "lines n"]


def find_lines(values: Float[np.ndarray, "N n"]) -> Lines | None:
    """The few sines, each over at least one period, that a signal consists of; None for all other signals."""
    deviation = values.std(axis=0)
    if np.isnan(values).any() or not np.all(deviation > 0):
        return None
    angles = _angles((values - values.mean(axis=0)) / deviation)
    if angles is None:
        return None
    lines = fit_lines(angles, values)
    gap = values - lines.constant - (_turns(angles, len(values)) @ lines.amplitudes).real
    return lines if np.all(np.sqrt(np.mean(gap**2, axis=0)) <= EXACT * deviation) else None


def fit_lines(angles: Float[np.ndarray, "lines"], values: Float[np.ndarray, "N n"]) -> Lines:
    """A constant, sines of given frequencies and transients where they show, by least squares over known samples."""
    turns = _turns(angles, len(values))
    columns = np.concatenate([np.ones((len(values), 1)), turns.real, -turns.imag, _transients(values)], axis=1)
    known = ~np.isnan(values)
    found = [np.linalg.lstsq(columns[k], v[k], rcond=None)[0] for v, k in zip(values.T, known.T, strict=True)]
    constant, real, imaginary, _ = np.split(np.stack(found, axis=1), np.cumsum([1, len(angles), len(angles)]))
    return Lines(angles, constant[0], real + 1j * imaginary)


def _angles(values: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "lines"] | None:
    """Frequencies of a signal of steady sines; None if there are not just a few, or one has less than a period."""
    poles = _poles(values)
    turning = np.abs(np.angle(poles)) * len(values) > STILL
    angles = np.angle(poles[turning & (poles.imag > 0)])
    whole = bool(np.all(angles * len(values) >= 2.0 * np.pi * (1.0 - EXACT)))
    paired = 2 * len(angles) == np.sum(turning)
    steady = bool(np.all(np.abs(np.abs(poles) - 1.0) < EXACT))
    return angles if len(angles) and whole and paired and steady else None


def _transients(values: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N m"]:
    """What decays in a signal of a few modes, as columns; none where samples are missing or there is noise."""
    moves = np.ptp(values, axis=0) > 0
    if np.isnan(values).any() or not moves.any():
        return np.zeros((len(values), 0))
    poles = _poles(((values - values.mean(axis=0)) / np.where(moves, values.std(axis=0), 1.0))[:, moves])
    decaying = poles[(np.abs(poles) < 1.0 - EXACT) & (poles.imag >= 0)]
    courses = decaying ** np.arange(len(values))[:, None]
    return np.concatenate([courses.real, courses.imag[:, decaying.imag > 0]], axis=1)


def _poles(values: Float[np.ndarray, "N n"]) -> Complex[np.ndarray, "m"]:
    """Of a signal of a few modes `p^k`, their p, from the shift of its delayed copies (ESPRIT); of others none."""
    rows = min(ROWS, len(values) // 3)
    if rows < LEAST_ROWS:
        return np.zeros(0, dtype=complex)
    delayed = np.lib.stride_tricks.sliding_window_view(values[:SAMPLES], rows, axis=0).reshape(-1, rows)
    _, sizes, vectors = np.linalg.svd(np.linalg.qr(delayed, mode="r"))
    rank = int(np.sum(sizes > RANK_TOLERANCE * sizes[0]))
    if rank > rows // 2:
        return np.zeros(0, dtype=complex)
    shift = np.linalg.lstsq(vectors[:rank, :-1].T, vectors[:rank, 1:].T, rcond=None)[0]
    return np.linalg.eigvals(shift).astype(complex)


def _turns(angles: Float[np.ndarray, "lines"], samples: int) -> Complex[np.ndarray, "N lines"]:
    return np.exp(1j * np.outer(np.arange(samples), angles))
