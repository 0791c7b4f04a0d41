"""Levels of process and measurement noise, from how a model differs from a record."""

from __future__ import annotations

import numpy as np

from tausid.control.moments import gain
from tausid.control.observer import Estimate, Noise, Observer
from tausid.data.records import Record
from tausid.errors import DataError
from tausid.export.description import describe
from tausid.model.ensembles import AnyModel

# Process noise that is tried: variance that a normalized state gains per tau, over that of the measurement (both
# normalized).
RATIOS = 10.0 ** np.arange(-6, 4)
# Samples that the levels are found from, at most, and at least; and those at the start that do not count.
MOST, FEWEST, SETTLING = 400, 30, 10
# Measurement noise is no less than this share of an output's deviation.
SMALLEST = 1e-4


def estimate_noise(model: AnyModel, record: Record) -> Noise:
    """The noise levels with which the innovations of an observer on a record are the most likely.

    Of the measurement, the outputs' relative levels are those of the residuals' changes from sample to sample. Process
    noise is alike in all states. Their ratio is found by trial, with filters that are linearized along the course of a
    first one; the level of both by maximum likelihood.

    Args:
        model: the model, or an ensemble.
        record: inputs and outputs; its first 400 samples are used.

    Returns:
        The levels, with words on where they come from.

    Raises:
        DataError: too few measured samples.
    """
    part = record.part(0, min(len(record), MOST))
    residual = part.y - model.simulate(part, throw=False).y
    changes = np.diff(residual, axis=0)
    if np.isfinite(changes).sum(axis=0).min() < FEWEST:
        raise DataError(
            f"record {record.name!r} must have {FEWEST} pairs of measured samples for noise levels; it has less, or "
            "the simulation diverged. Give a longer record, or the levels: Noise(process, measurement)."
        )
    level = np.maximum(np.nanvar(changes, axis=0) / 2, (SMALLEST * model.scaling.y_std) ** 2)
    unit = float(np.mean(level / model.scaling.y_std**2)) / float(np.mean(model.tau))
    nx = describe(model).nx
    guess = Observer(model, Noise(unit * np.eye(nx), np.diag(level)))
    course = [guess.update(*sample) for sample in zip(part.u, part.y, part.t, strict=True)]
    steps = np.diff(part.t, prepend=part.t[0])
    trials = [_trial(course, steps, Noise(ratio * unit * np.eye(nx), np.diag(level))) for ratio in RATIOS]
    _, scale, noise = max(trials, key=lambda trial: trial[0])
    source = (
        f"maximum likelihood over {len(part)} samples of {record.name!r}: measurement "
        f"{', '.join(f'{s:.3g}' for s in np.sqrt(scale * level))} (standard deviation), process "
        f"{np.sqrt(scale * noise.process[0, 0]):.3g} per square root of a second in each normalized state"
    )
    return Noise(scale * noise.process, scale * noise.measurement, source)


def _trial(course: list[Estimate], steps: np.ndarray, noise: Noise) -> tuple[float, float, Noise]:
    """The log likelihood of a filter's innovations with the best level for its ratio, that level, and the noise.

    The filter is linearized along the course of another one: `away` is how far their states are apart.
    """
    away, P = np.zeros(len(noise.process)), np.eye(len(noise.process))
    squares, logs, count = 0.0, 0.0, 0
    for k, (own, dt) in enumerate(zip(course, steps, strict=True)):
        away, P = own.F @ away, own.F @ P @ own.F.T + noise.process * dt
        known = np.isfinite(own.innovation)
        if known.any():
            C, R = own.C[known], noise.measurement[np.ix_(known, known)]
            e, S = own.innovation[known] - C @ away, C @ P @ C.T + R
            K, P = gain(P, C, R)
            away = away + K @ e - (own.x - own.predicted)
            if k >= SETTLING:
                squares += float(e @ np.linalg.solve(S, e))
                logs += float(np.linalg.slogdet(S)[1])
                count += len(e)
    scale = squares / count
    likelihood = -0.5 * (logs + count * np.log(scale))
    return (likelihood if np.isfinite(likelihood) else -np.inf), scale, noise
