"""Folds: how many steps to take, from held-out stretches of the training records, one fold after the other's chunk."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from tausid.data.records import Record
from tausid.errors import ConfigError
from tausid.model.config import FULL, LARGEST, Config
from tausid.model.free_run import initial_samples
from tausid.training.loop import Problem, RunState, advance
from tausid.training.protocols import Split
from tausid.training.result import FoldCurves


def cut_folds(records: Sequence[Record], config: Config) -> tuple[Split, ...]:
    """Each record in `folds` stretches: fold k holds out the k-th one of every record and trains on the rest.

    Training never sees a held-out sample. A held-out stretch comes with the samples before it that its initial state
    is found from, which are not scored; what is too short for a window is left out of training.
    """
    return tuple(_cut_fold(records, config, k) for k in range(config.folds))


def _cut_fold(records: Sequence[Record], config: Config, k: int) -> Split:
    n_initial = initial_samples(config)
    horizon = max(2 if horizon == FULL else int(horizon) for horizon in config.horizons)
    train: list[Record] = []
    validation: list[Record] = []
    for record in records:
        start, stop = stretch(len(record), k, config.folds)
        rest = ((0, start), (stop, len(record)))
        train += [record.part(a, b) for a, b in rest if b - a >= n_initial + horizon]
        validation.append(record.part(max(0, start - n_initial), stop))
    shortest = min(len(part) for part in validation)
    if shortest < n_initial + 2 or not train:
        raise ConfigError(
            f"`folds` must leave stretches to train on ({n_initial + horizon} samples) and to score ({n_initial + 2}); "
            f"{config.folds} folds do not: the shortest stretch has {shortest} samples. "
            "Use fewer folds, a shorter horizon, or longer records."
        )
    return Split(tuple(train), tuple(validation))


def stretch(samples: int, k: int, folds: int, kept: int = 0) -> tuple[int, int]:
    """Where the k-th stretch of a record lies."""
    start, stop = (round(samples * i / folds) for i in (k, k + 1))
    return max(start, min(kept, samples // (2 * folds))), stop


def fold_config(config: Config) -> Config:
    """The settings of one fold: it does not stop by itself, as all folds decide together."""
    return dataclasses.replace(config, patience=LARGEST, validation_fraction=0.0)


def train_folds(
    problems: Sequence[Problem],
    runs: Sequence[RunState],
    *,
    patience: int,
    after: Callable[[int, RunState, RunState], bool],
) -> tuple[tuple[RunState, ...], FoldCurves]:
    """Train all folds side by side, a chunk at a time, until their pooled error has not fallen for `patience`."""
    now, weights = list(runs), [_scored(problem) for problem in problems]
    while True:
        curves = pool(now, weights)
        behind = min(range(len(now)), key=lambda k: (now[k].status != "running", now[k].step))
        begun = max(curves.chosen, problems[0].last_stage_start)
        done = bool(curves.steps) and curves.steps[-1] - begun >= patience
        if done or now[behind].status != "running":
            return tuple(now), curves
        before, now[behind] = now[behind], advance(problems[behind], now[behind])
        if after(behind, before, now[behind]):
            return tuple(now), pool(now, weights)


def pool(runs: Sequence[RunState], weights: Sequence[float]) -> FoldCurves:
    """The folds' curves up to the step that all of them have reached; at each step the latest validation counts."""
    reached = min((run.history[-1].step if run.history else 0 for run in runs if run.status != "diverged"), default=0)
    steps = sorted({row.step for run in runs for row in run.history if row.step <= reached})
    scores = np.array([[_score_at(run, step) for step in steps] for run in runs]).reshape(len(runs), -1)
    pooled = geometric_mean(scores, weights)
    chosen = steps[int(np.argmin(pooled))] if np.isfinite(pooled).any() else 0
    return FoldCurves(tuple(steps), tuple(map(tuple, scores.tolist())), tuple(pooled.tolist()), chosen)


def geometric_mean(scores: Float[np.ndarray, "folds steps"], weights: Sequence[float]) -> Float[np.ndarray, "steps"]:
    """Errors of all folds as one."""
    return np.exp(np.average(np.log(np.maximum(scores, np.finfo(float).tiny)), axis=0, weights=weights))


def _score_at(run: RunState, step: int) -> float:
    if run.status == "diverged" and step > run.step:
        return math.inf
    return next((row.validation for row in reversed(run.history) if row.step <= step), math.inf)


def _scored(problem: Problem) -> float:
    return float(sum(len(record) for record in problem.split.validation))
