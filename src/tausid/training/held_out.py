"""What trials are trained on, and what they are scored on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tausid.data.records import Record
from tausid.errors import ConfigError
from tausid.model.config import Config
from tausid.model.free_run import initial_samples
from tausid.training.folds import stretch
from tausid.training.protocols import Split

# Training samples that a choice is tried on where validation records decide.
TRIED_SAMPLES = 4096
# An input stands still where its variance is below this share of that in the whole record.
STILL = 0.01


def hold_out(split: Split, config: Config) -> tuple[Split, ...]:
    """What trials are trained on and scored on."""
    if config.folds:
        splits = [_fold(split.train, k, config) for k in range(config.folds)]
        if not any(fold.validation for fold in splits):
            raise ConfigError(
                f"`folds` must hold out measured outputs; none of {config.folds} folds does, with "
                f"{initial_samples(config)} samples for an initial state and more to score. Use fewer folds, folds=0, "
                "or longer records."
            )
        return tuple(fold for fold in splits if fold.validation)
    if not split.validation:
        return ()
    share = min(1.0, TRIED_SAMPLES / sum(len(record) for record in split.train))
    return (Split(tuple(_lively(r, max(2, round(share * len(r)))) for r in split.train), split.validation),)


def _lively(record: Record, samples: int) -> Record:
    """The first samples of a record; where an input stands still in them, those in which the stillest one moves most;
    the whole record where it stands still there, too."""
    moving = record.u.std(axis=0) > 0
    u = (record.u[:, moving] - record.u[:, moving].mean(axis=0)) / record.u[:, moving].std(axis=0)
    if not moving.any() or u[:samples].var(axis=0).min() >= STILL:
        return record.part(0, samples)
    sums, squares = (np.cumsum(np.pad(v, ((1, 0), (0, 0))), axis=0) for v in (u, u**2))
    mean, power = ((s[samples:] - s[:-samples]) / samples for s in (sums, squares))
    variances = (power - mean**2).min(axis=1)
    start = int(np.argmax(variances))
    return record.part(start, start + samples) if variances[start] >= STILL else record


def _fold(records: Sequence[Record], k: int, config: Config) -> Split:
    """All records without the outputs of their k-th stretch, and these stretches, where they can be scored."""
    train, held_out, initial = [], [], initial_samples(config)
    for record in records:
        start, stop = stretch(len(record), k, config.folds, initial)
        measured = ~np.isnan(record.y)
        begins, scored = measured[start : start + initial].any(), measured[start + initial : stop]
        left = np.delete(measured, slice(start, stop), axis=0)
        if begins and len(scored) >= 2 and scored.any(axis=0).all() and left.any(axis=0).all():
            held_out.append(record.part(start, stop))
            train.append(without(record, start, stop))
        else:
            train.append(record)
    return Split(tuple(train), tuple(held_out))


def without(record: Record, start: int, stop: int) -> Record:
    """The record without some outputs; its inputs stay, so that it is simulated all the same."""
    y = np.array(record.y, float)
    y[start:stop] = np.nan
    return dataclasses.replace(record, y=y)
