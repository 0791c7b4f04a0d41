"""Which samples training may see, and which ones decide when it stops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tausid.data.clocks import split_at_gaps
from tausid.data.records import Record, Records, as_records, check_same_channels
from tausid.errors import ConfigError
from tausid.model.config import FULL, Config
from tausid.model.free_run import initial_samples

# Samples of the test record that the paper's early stopping sees.
PAPER_VALIDATION_SAMPLES = 512


@dataclass(frozen=True)
class Split:
    """Records by their role in training.

    Args:
        train: what windows are drawn from, and what the scaling is computed from.
        validation: what is simulated freely to choose the best model; may be empty.
    """

    train: tuple[Record, ...]
    validation: tuple[Record, ...]


def split_records(records: Records, config: Config, *, validation: Records | None, test: Records | None) -> Split:
    """Apply the protocol.

    `clean`: validation is what was given for it, or the last part of each training record; nothing of a test
    record is seen. `paper`: validation is the first 512 samples (at most half) of the test record.
    """
    train = as_records(records)
    if config.protocol == "paper":
        split = Split(train, _paper_validation(validation, test))
    elif config.folds:
        split = Split(train, _no_validation(validation))
    elif validation is not None:
        split = Split(train, as_records(validation))
    elif config.validation_fraction > 0:
        split = _hold_out(train, config.validation_fraction, initial_samples(config))
    else:
        split = Split(train, ())
    check_same_channels((*split.train, *split.validation))
    return _without_gaps(split, config)


def _without_gaps(split: Split, config: Config) -> Split:
    """The same records, cut where their clock has a gap: no window and no free run goes through one."""
    n_initial = initial_samples(config)
    horizon = max(2 if horizon == FULL else int(horizon) for horizon in config.horizons)
    least = (2 if config.initial_state == "free" else n_initial) + horizon
    train = [part for r in split.train for part in split_at_gaps(r, least=least, max_gap=config.max_gap)]
    validation = [
        part for r in split.validation for part in split_at_gaps(r, least=n_initial + 2, max_gap=config.max_gap)
    ]
    return Split(tuple(train), tuple(validation))


def _no_validation(validation: Records | None) -> tuple[Record, ...]:
    if validation is not None:
        raise ConfigError(
            "`folds` must have no validation records, as they hold out stretches of the training records; got some. "
            "Leave them out, or use folds=0."
        )
    return ()


def _paper_validation(validation: Records | None, test: Records | None) -> tuple[Record, ...]:
    if test is None:
        raise ConfigError(
            "protocol 'paper' must have a test record, because its early stopping looks at the test record's first "
            f"{PAPER_VALIDATION_SAMPLES} samples; got none. Give one, or use protocol 'clean'."
        )
    if validation is not None:
        raise ConfigError(
            "protocol 'paper' must validate on the test record; got validation records as well. "
            "Leave them out, or use protocol 'clean'."
        )
    first = as_records(test)[0]
    return (first.part(0, min(PAPER_VALIDATION_SAMPLES, len(first) // 2)),)


def _hold_out(records: tuple[Record, ...], fraction: float, n_initial: int) -> Split:
    cuts = [_find_cut(record, fraction, n_initial) for record in records]
    train = tuple(record.part(0, cut) for record, cut in zip(records, cuts, strict=True))
    validation = tuple(record.part(cut, len(record)) for record, cut in zip(records, cuts, strict=True))
    return Split(train, validation)


def _find_cut(record: Record, fraction: float, n_initial: int) -> int:
    """Where the held-out end begins: with outputs for its initial state, and with others left to score."""
    measured = ~np.isnan(record.y)
    for cut in range(max(2, len(record) - round(fraction * len(record))), len(record) - n_initial):
        scored = measured[cut + n_initial :].any(axis=0).all()
        begins = n_initial == 0 or measured[cut : cut + n_initial].any(axis=0).all()
        if begins and scored and measured[:cut].any(axis=0).all():
            return cut
    raise ConfigError(
        f"the last {fraction:g} of record {record.name!r} must hold {n_initial} samples with every output measured "
        f"among them for its initial state, and more to score; it does not ({len(record)} samples, "
        f"{int((~measured.all(axis=1)).sum())} of them with a missing output). Change validation_fraction (0 for no "
        "validation), or give validation records."
    )
