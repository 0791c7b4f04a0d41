"""Systems with known answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import signal

import tausid
from tausid import Record

# A fit with Adam that takes a moment.
SMALL = {
    "structure.hidden": (8,),
    "trainer.horizon": 20,
    "trainer.batch": 16,
    "trainer.steps": 60,
    "trainer.validate_every": 20,
}


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


def small_fit(record: Record | None = None, settings: dict | None = None, **changes) -> tausid.FitResult:
    """A fit with the recipe `windows` that takes a moment; changes of SMALL by key, others as arguments of `fit`."""
    arguments = {"recipe": "windows", "nx": 2, "tau": 2.0, "seed": 0, "progress": None, **changes}
    data = wiener_record(200) if record is None else record
    return tausid.fit(data, settings={**SMALL, **(settings or {})}, **arguments)


# Nonlinear plants, each a continuous-time system with its own difficulty: dx/dt = f(x, u), y = g(x, u).


@dataclass(frozen=True)
class Plant:
    """A system to be identified: its equations, its clock, its excitation and its noise floor."""

    f: Callable[[np.ndarray, np.ndarray], np.ndarray]
    g: Callable[[np.ndarray, np.ndarray], np.ndarray]
    x0: tuple[float, ...]
    ts: float
    noise: float
    excite: Callable[[int, int], np.ndarray]
    control: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def record(self, samples: int, *, seed: int, noise: bool = True, name: str = "plant") -> Record:
        """A record with a zero-order-held input; under control the excitation is the reference."""
        rng = np.random.default_rng(seed + 1)
        x, given = np.array(self.x0) * (1.0 + 0.2 * rng.standard_normal(len(self.x0))), self.excite(samples, seed)
        u, y = np.zeros_like(given), []
        for k in range(samples):
            u[k] = given[k] if self.control is None else self.control(given[k], x)
            y.append(self.g(x, u[k]))
            x = advance(self.f, x, u[k], self.ts)
        clean = np.array(y)
        return Record.from_arrays(
            u, clean + noise * self.noise * rng.standard_normal(clean.shape), ts=self.ts, name=name
        )


def advance(f: Callable, x: np.ndarray, u: np.ndarray, dt: float, parts: int = 20) -> np.ndarray:
    """The state after a step with a constant input, by twenty Runge-Kutta steps: exact to 1e-6 for these plants."""
    h = dt / parts
    for _ in range(parts):
        k1 = f(x, u)
        k2 = f(x + h / 2 * k1, u)
        k3 = f(x + h / 2 * k2, u)
        k4 = f(x + h * k3, u)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def held_steps(samples: int, seed: int, *, every: int = 8) -> np.ndarray:
    """Random levels of unit deviation, each held for some samples."""
    levels = np.random.default_rng(seed).standard_normal(samples // every + 1)
    return np.repeat(levels, every)[:samples, None]


def smooth_reference(samples: int, seed: int) -> np.ndarray:
    """A slow multisine of unit deviation."""
    return multisine(samples, lines=samples // 40, seed=seed)[:, None]


PLANTS = {
    # A pendulum that swings out: no input, other initial angles.
    "autonomous": Plant(
        f=lambda x, u: np.array([x[1], -np.sin(x[0]) - 0.15 * x[1]]),
        g=lambda x, u: x[:1],
        x0=(1.8, 0.5),
        ts=0.2,
        noise=0.02,
        excite=lambda samples, seed: np.zeros((samples, 0)),
    ),
    # A static nonlinearity: no memory at all.
    "static": Plant(
        f=lambda x, u: np.zeros(0),
        g=lambda x, u: np.tanh(1.5 * u) + 0.3 * u**2,
        x0=(),
        ts=1.0,
        noise=0.02,
        excite=lambda samples, seed: held_steps(samples, seed, every=2),
    ),
    # A drive with friction: force in, position out, under position control (as EMPS).
    "integrator": Plant(
        f=lambda x, u: np.array([x[1], u[0] - 1.5 * x[1] - 0.4 * np.tanh(x[1] / 0.3)]),
        g=lambda x, u: x[:1],
        x0=(0.0, 0.0),
        ts=0.1,
        noise=0.02,
        excite=smooth_reference,
        control=lambda r, x: np.array([8.0 * (r[0] - x[0]) - 2.0 * x[1]]),
    ),
    # A spring that stiffens, with two percent of critical damping.
    "lightly damped": Plant(
        f=lambda x, u: np.array([x[1], 4.0 * u[0] - 4.0 * x[0] * (1.0 + 0.03 * x[0] ** 2) - 0.08 * x[1]]),
        g=lambda x, u: x[:1],
        x0=(0.0, 0.0),
        ts=0.3,
        noise=0.05,
        excite=lambda samples, seed: 0.3 * held_steps(samples, seed, every=5),
    ),
    # Time constants of 5 s and 0.02 s at a sampling time of 0.2 s: one explicit step per sample would be unstable.
    "stiff": Plant(
        f=lambda x, u: np.array([(np.tanh(u[0]) - x[0]) / 5.0, (x[0] + 0.2 * u[0] - x[1]) / 0.02]),
        g=lambda x, u: x[1:],
        x0=(0.0, 0.0),
        ts=0.2,
        noise=0.01,
        excite=lambda samples, seed: held_steps(samples, seed, every=10),
    ),
}


def oscillator_at(
    t: np.ndarray, *, seed: int, lines: int = 25, base_hz: float = 1 / 300
) -> tuple[np.ndarray, np.ndarray]:
    """A multisine of unit deviation and the oscillator's exact steady response to it, at any times."""
    rng = np.random.default_rng(seed)
    omega = 2 * np.pi * base_hz * np.arange(1, lines + 1)
    waves = np.sqrt(2.0 / lines) * np.exp(1j * (np.outer(t, omega) + rng.uniform(0, 2 * np.pi, lines)))
    states = [np.linalg.solve(1j * w * np.eye(2) - OSCILLATOR_A, OSCILLATOR_B)[:, 0] for w in omega]
    response = np.array([(OSCILLATOR_C @ x)[0] for x in states])
    return waves.sum(axis=1).real, (waves @ response).real
