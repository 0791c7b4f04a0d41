"""Steps of preparation as words, for the command line, studies and the history of a record."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from tausid import checks
from tausid.data import preparation
from tausid.data.records import Record
from tausid.errors import ConfigError, DataError

# The step that is done when a file is read, as a record cannot have two samples at one time.
REPEATED = "drop-repeated-times"


def prepare(record: Record, *steps: str) -> Record:
    """Apply steps that are written as text, one after the other.

    Args:
        record: the record.
        *steps: `trim START STOP [s|samples]`, `detrend [constant|linear] [CHANNEL ...]`, `resample TS`,
            `decimate FACTOR`, `interpolate TS [hold|linear]`, `split SHARE first|last`, `blank VALUE`,
            `drop-outliers [CHANNEL ...]`, `clip LOW HIGH CHANNEL ...`.

    Returns:
        The record after the last step.

    Raises:
        ConfigError: a step is unknown, or its arguments break its rule.
        DataError: a step cannot be done with this record.

    Example:
        >>> prepare(Record.from_arrays(range(8), range(8), ts=1.0), "trim 2 6", "split 0.5 last").t
        array([4., 5.])
    """
    for step in steps:
        record = _apply(record, step)
    return record


def _apply(record: Record, step: str) -> Record:
    try:
        name, *arguments = shlex.split(step) or [""]
    except ValueError as error:
        raise ConfigError(f"a step of preparation must be words; {step!r} is not: {error}. Close the quote.") from None
    checks.check_choice("step of preparation", name, _STEPS)
    usage, run = _STEPS[name]
    try:
        return run(record, arguments)
    except (IndexError, ValueError) as error:
        if isinstance(error, ConfigError | DataError):
            raise
        raise ConfigError(f"`{name}` must be written as {usage!r}; got {step!r}. Correct it.") from None


def _run_trim(record: Record, given: list[str]) -> Record:
    start, stop, unit = (*given, *("-inf", "inf", "s")[len(given) :])
    return preparation.trim(record, float(start), float(stop), unit=unit)


def _run_detrend(record: Record, given: list[str]) -> Record:
    return preparation.detrend(record, given[0] if given else "constant", channels=given[1:] or None)


def _run_resample(record: Record, given: list[str]) -> Record:
    (ts,) = given
    return preparation.resample(record, float(ts))


def _run_decimate(record: Record, given: list[str]) -> Record:
    (factor,) = given
    return preparation.decimate(record, int(factor))


def _run_interpolate(record: Record, given: list[str]) -> Record:
    ts, inputs = (*given, "hold") if len(given) == 1 else given
    return preparation.interpolate(record, float(ts), inputs=inputs)


def _run_split(record: Record, given: list[str]) -> Record:
    share, part = given
    return preparation.split(record, float(share))[("first", "last").index(part)]


def _run_clip(record: Record, given: list[str]) -> Record:
    low, high, first, *others = given
    return preparation.clip(record, float(low), float(high), [first, *others])


def _run_blank(record: Record, given: list[str]) -> Record:
    (value,) = given
    return preparation.blank(record, float(value))


_STEPS: dict[str, tuple[str, Callable[[Record, list[str]], Record]]] = {
    "trim": ("trim START STOP [s|samples]", _run_trim),
    "detrend": ("detrend [constant|linear] [CHANNEL ...]", _run_detrend),
    "resample": ("resample TS", _run_resample),
    "decimate": ("decimate FACTOR", _run_decimate),
    "interpolate": ("interpolate TS [hold|linear]", _run_interpolate),
    "split": ("split SHARE first|last", _run_split),
    "blank": ("blank VALUE", _run_blank),
    "drop-outliers": (
        "drop-outliers [CHANNEL ...]",
        lambda record, given: preparation.drop_outliers(record, channels=given or None),
    ),
    "clip": ("clip LOW HIGH CHANNEL ...", _run_clip),
    # A record has none left: they are dropped where a file is read.
    REPEATED: (REPEATED, lambda record, given: record),
}
