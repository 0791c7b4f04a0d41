"""Which samples training may see, and which ones decide when it stops."""

from __future__ import annotations

from dataclasses import dataclass

from tausid.config import Config
from tausid.errors import ConfigError
from tausid.records import Record, Records, as_records, check_same_channels

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

    Args:
        records: training records.
        config: protocol and validation fraction.
        validation: held-out records, if there are any.
        test: test records; only the `paper` protocol looks at them.

    Returns:
        The records by role.

    Raises:
        ConfigError: the `paper` protocol without a test record or with validation records.
        DataError: records with different channels.
    """
    train = as_records(records)
    if config.protocol == "paper":
        split = Split(train, _paper_validation(validation, test))
    elif validation is not None:
        split = Split(train, as_records(validation))
    elif config.validation_fraction > 0:
        split = _hold_out(train, config.validation_fraction)
    else:
        split = Split(train, ())
    check_same_channels((*split.train, *split.validation))
    return split


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


def _hold_out(records: tuple[Record, ...], fraction: float) -> Split:
    train, validation = [], []
    for record in records:
        cut = len(record) - max(2, round(fraction * len(record)))
        if cut < 2:
            raise ConfigError(
                f"record {record.name!r} must have samples for training and for validation; got {len(record)}. "
                "Use a longer record, or validation_fraction=0."
            )
        train.append(record.part(0, cut))
        validation.append(record.part(cut, len(record)))
    return Split(tuple(train), tuple(validation))
