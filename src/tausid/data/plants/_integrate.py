"""What all simulated plants share: Runge-Kutta steps, and records with random numbers of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tausid.checks import check_number, check_whole
from tausid.data.records import Dataset, Record, as_columns
from tausid.errors import DataError
from tausid.shapes import ArrayLike, Float

# Two samples hold no line of a multisine below half the sampling rate.
LEAST_SAMPLES = 3

State = tuple[float, ...]
Channels = tuple[tuple[str, str], ...]
# Makes inputs (N, nu) and outputs (N, ny) of one record.
Experiment = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def make_dataset(
    experiments: Mapping[str, Experiment],
    lengths: Sequence[int],
    *,
    name: str,
    seed: int,
    ts: float,
    inputs: Channels,
    outputs: Channels,
    noise: Sequence[float],
) -> Dataset:
    """Make the training record and the test ones, named and in this order, each with random numbers of its own."""
    check_whole("seed", seed, 0)
    for role, length in zip(experiments, lengths, strict=True):
        check_whole(f"samples of the {role} record", length, LEAST_SAMPLES)
    check_number("ts", ts, positive=True)
    streams = np.random.SeedSequence(seed).spawn(len(experiments))
    records = []
    for (role, experiment), length, stream in zip(experiments.items(), lengths, streams, strict=True):
        u, y = experiment(np.random.default_rng(stream), length)
        records.append(
            Record.from_arrays(
                u,
                y,
                ts=ts,
                input_names=[channel for channel, _ in inputs],
                output_names=[channel for channel, _ in outputs],
                units=dict((*inputs, *outputs)),
                name=role,
            )
        )
    train, test, *more = records
    return Dataset(train=train, test=test, more_tests=tuple(more), name=name, noise=tuple(noise))


def sample_states(
    step: Callable[[State, State, float], State],
    u: Float[np.ndarray, "N nu"],
    x0: State,
    *,
    ts: float,
    max_step: float,
) -> Float[np.ndarray, "N nx"]:
    """States at the samples, for inputs held constant between them."""
    substeps = math.ceil(ts / max_step)
    x, states = x0, [x0]
    for held in u[:-1].tolist():
        for _ in range(substeps):
            x = step(x, held, ts / substeps)
        states.append(x)
    return np.array(states)


def runge_kutta(derivative: Callable[[State], State], x: State, h: float) -> State:
    """One step of the classical Runge-Kutta method of order 4."""
    a = derivative(x)
    b = derivative(_moved(x, a, h / 2))
    c = derivative(_moved(x, b, h / 2))
    d = derivative(_moved(x, c, h))
    slopes = zip(a, b, c, d, strict=True)
    return _moved(x, tuple(ai + 2 * bi + 2 * ci + di for ai, bi, ci, di in slopes), h / 6)


def _moved(x: State, slope: State, h: float) -> State:
    return tuple(xi + h * si for xi, si in zip(x, slope, strict=True))


def as_signal(u: ArrayLike, names: Sequence[str]) -> Float[np.ndarray, "N nu"]:
    """Finite signals, one column for each name."""
    signal = as_columns(u, "u")
    if signal.shape[1] != len(names) or len(signal) == 0 or not np.all(np.isfinite(signal)):
        what = "one channel" if len(names) == 1 else f"{len(names)} channels"
        raise DataError(
            f"`u` must be a finite signal of {what}; got shape {np.shape(u)} with {int(np.sum(~np.isfinite(signal)))} "
            f"NaN or infinite values. Give the {' and '.join(names)} at each sample."
        )
    return signal
