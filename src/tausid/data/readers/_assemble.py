"""A table -> a record: choose the columns, check them for their roles, fill what is to be filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tausid.checks import check_choice
from tausid.data.readers._stamps import read_stamps
from tausid.data.readers._tables import Column, Key, Keys, Table, find_columns
from tausid.data.records import Record, make_clock
from tausid.errors import DataError
from tausid.shapes import Float

FILLS = ("hold", "linear")


@dataclass(frozen=True)
class Choice:
    """Which columns of a table have which role."""

    inputs: tuple[int, ...]  # positions of the inputs
    outputs: tuple[int, ...]  # positions of the outputs
    time: int | None  # position of the time stamps, or None
    ts: float | None  # sampling time in seconds, or None


def choose(table: Table, inputs: Keys | None, outputs: Keys | None, *, ts: float | None, time: Key | None) -> Choice:
    """The columns asked for; where nothing was, those that the file itself names."""
    chosen_u = table.inputs if inputs is None else tuple(find_columns(table, inputs))
    chosen_y = table.outputs if outputs is None else tuple(find_columns(table, outputs))
    if outputs is None and not chosen_y:
        raise DataError(
            f"a record must have an output; none was named, and {table.source} names none itself. It has "
            f"{', '.join(table.names) or 'nothing that could be one'}. Name the inputs and outputs."
        )
    if ts is None and time is None:
        return Choice(chosen_u, chosen_y, table.time, table.ts)
    stamps = () if time is None else find_columns(table, time)
    if len(stamps) > 1:
        raise DataError(
            f"time of {table.source} must be one {table.word}; {time!r} are {len(stamps)}. "
            f"Choose one: {', '.join(table.names[i] for i in stamps)}."
        )
    return Choice(chosen_u, chosen_y, stamps[0] if stamps else None, ts)


def record_from_table(
    table: Table,
    choice: Choice,
    *,
    units: Mapping[str, str] | None,
    fill: str | None,
    name: str | None,
    time_format: str | None = None,
    drop_repeated: bool = False,
) -> Record:
    """A record of the chosen columns; samples whose time stamp is that of the one before may be dropped."""
    if fill is not None:
        check_choice("fill", fill, FILLS)
    channels = (*choice.inputs, *choice.outputs)
    numbers = {i: table.columns[i].load() for i in channels}
    said: list[str] = []
    if choice.time is not None:
        numbers[choice.time], how = read_stamps(table, choice.time, time_format)
        said += [how] if how else []
    if table.check is not None:  # of dates not: they have points of their own
        table.check([i for i in numbers if i in channels or not said])
    samples = _count_samples(table, numbers, channels)
    if choice.time is not None:
        _check_known(table, choice.time, numbers[choice.time][:samples], role="time")
        if drop_repeated:
            numbers, dropped = _drop_repeated(numbers, choice.time, samples)
            samples, said = samples - dropped, [*said, f"drop-repeated-times: {dropped} of {samples} samples"]
    clock = make_clock(samples, ts=choice.ts, t=None if choice.time is None else numbers[choice.time][:samples])
    u, filled = _stack_inputs(table, choice.inputs, numbers, clock, fill)
    y = _stack(numbers, choice.outputs, samples)
    for place, i in enumerate(choice.outputs):
        _check_known(table, i, y[:, place], role="output")
    labels = _labels([table.columns[i] for i in channels])
    record = Record.from_arrays(
        u,
        y,
        t=clock,
        input_names=labels[: len(choice.inputs)],
        output_names=labels[len(choice.inputs) :],
        units=units if units is not None else _own_units(table, channels, labels),
        name=table.name if name is None else name,
    )
    return replace(record, history=(*said, *filled))


def _drop_repeated(numbers: Mapping[int, np.ndarray], time: int, samples: int) -> tuple[dict[int, np.ndarray], int]:
    """The samples without those whose time stamp is that of the sample before, and how many these are."""
    new = np.append(True, np.diff(numbers[time][:samples]) != 0)
    return {i: values[:samples][new] for i, values in numbers.items()}, int((~new).sum())


def _labels(columns: Sequence[Column]) -> list[str]:
    """Short names, full ones where the short ones clash."""
    short = [column.short for column in columns]
    return short if len(set(short)) == len(short) else [column.name for column in columns]


def _own_units(table: Table, channels: Sequence[int], labels: Sequence[str]) -> dict[str, str]:
    return {label: table.columns[i].unit for i, label in zip(channels, labels, strict=True)}


def _count_samples(table: Table, numbers: Mapping[int, np.ndarray], channels: Sequence[int]) -> int:
    """The number of samples, which all share; in a padded table time may be longer."""
    samples = len(numbers[channels[0]]) if channels else 0
    for i, column in numbers.items():
        longer = len(column) > samples and (i in channels or not table.padded)
        if len(column) < samples or longer:
            raise DataError(
                f"{table.word}s {table.names[channels[0]]!r} and {table.names[i]!r} of {table.source} must have the "
                f"same number of samples; got {samples} and {len(column)}. Choose {table.word}s that belong together, "
                "cut the longer one, or write NaN where an output is missing."
            )
    return samples


def _stack(numbers: Mapping[int, np.ndarray], columns: Sequence[int], samples: int) -> Float[np.ndarray, "N n"]:
    return np.stack([numbers[i] for i in columns], axis=1) if columns else np.zeros((samples, 0))


def _stack_inputs(
    table: Table, columns: Sequence[int], numbers: Mapping[int, np.ndarray], clock: np.ndarray, fill: str | None
) -> tuple[Float[np.ndarray, "N nu"], tuple[str, ...]]:
    """The inputs side by side, missing ones filled where that was asked for, and what was filled in words."""
    values, filled = _stack(numbers, columns, len(clock)), []
    for place, i in enumerate(columns):
        missing = np.flatnonzero(np.isnan(values[:, place]))
        if fill is not None and 0 < len(missing) < len(clock):
            values[:, place] = _fill(values[:, place], clock, fill)
            filled.append(f"fill {fill}: input {table.columns[i].short!r} at {table.rows(missing)}")
        _check_known(table, i, values[:, place], role="input")
    return values, tuple(filled)


def _fill(values: np.ndarray, clock: np.ndarray, fill: str) -> Float[np.ndarray, " N"]:
    """Missing values from known ones: the last known, or between two known; before the first and after the last it."""
    known = np.flatnonzero(~np.isnan(values))
    if fill == "hold":
        latest = np.searchsorted(known, np.arange(len(values)), side="right") - 1
        return values[known[np.maximum(latest, 0)]]
    with np.errstate(all="ignore"):  # a wild clock is refused by the record, with its sample
        return np.interp(clock, clock[known], values[known])


def _check_known(table: Table, index: int, values: np.ndarray, *, role: str) -> None:
    """An output may be missing (NaN); nothing may be infinite; the others must be known."""
    bad = np.flatnonzero(np.isinf(values) if role == "output" else ~np.isfinite(values))
    if not len(bad):
        return
    column = table.columns[index]
    shown = column.show(int(bad[0])) if column.show is not None else f"{values[bad[0]]}"
    first = "" if len(bad) == 1 else f", the first of {table.rows(bad)}"
    fills = "Fill it in, cut it out, or have it filled with `fill`: hold or linear."
    remedy = fills if role == "input" and not np.isinf(values).any() else f"Fill it in, or cut the {table.row_word}."
    raise DataError(
        f"{role} {table.word} {column.name!r} of {table.source} must be a finite number on every {table.row_word}; "
        f"{table.rows(bad[:1])} has {shown}{first}. {remedy}"
    )
