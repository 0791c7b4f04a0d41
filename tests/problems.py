"""Systems with known answers."""

from __future__ import annotations

import numpy as np
from scipy import signal

from tausid import Record


def multisine(samples: int, *, lines: int, seed: int) -> np.ndarray:
    """A random-phase multisine of unit deviation over one period, exciting the lowest `lines` frequencies."""
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, lines)
    time = np.arange(samples) / samples
    u = sum(np.cos(2 * np.pi * (k + 1) * time + phase) for k, phase in enumerate(phases))
    return u / np.std(u)


# A damped oscillator, dx/dt = A x + B u, y = C x, time constants of 2 s and more.
OSCILLATOR_A = np.array([[0.0, 1.0], [-0.25, -0.3]])
OSCILLATOR_B = np.array([[0.0], [0.25]])
OSCILLATOR_C = np.array([[1.0, 0.0]])


def oscillator_record(samples: int = 300, ts: float = 0.5, *, seed: int = 0, noise: float = 0.0) -> Record:
    """The oscillator's exact sampled response to a zero-order-held multisine, from rest."""
    u = multisine(samples, lines=samples // 8, seed=seed)
    discrete = signal.cont2discrete((OSCILLATOR_A, OSCILLATOR_B, OSCILLATOR_C, np.zeros((1, 1))), ts)
    _, y, _ = signal.dlsim(discrete, u[:, None])
    y = y + noise * np.random.default_rng(seed + 1).standard_normal(y.shape)
    return Record.from_arrays(u, y, ts=ts, name="oscillator")


def wiener_record(samples: int = 400, ts: float = 0.5, *, seed: int = 0, noise: float = 0.02) -> Record:
    """The oscillator behind a smooth saturation, y = tanh(1.5 x1), with noise: a small nonlinear plant."""
    linear = oscillator_record(samples, ts, seed=seed)
    y = np.tanh(1.5 * linear.y)
    y = y + noise * np.random.default_rng(seed + 1).standard_normal(y.shape)
    return Record.from_arrays(linear.u, y, ts=ts, name="wiener")
