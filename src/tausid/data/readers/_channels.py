"""All channels of a file as they are, before anyone has said which ones are inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from tausid.data.readers._assemble import Choice, choose
from tausid.data.readers._read import open_table
from tausid.data.readers._stamps import is_date, read_stamps
from tausid.data.readers._tables import Key, Keys, Table
from tausid.data.records import Record
from tausid.errors import DataError
from tausid.shapes import Float


@dataclass(frozen=True, eq=False)
class Channel:
    """One channel of a file; nothing is checked.

    Args:
        name: its name.
        values: its numbers, NaN where one is missing; empty if it holds none.
        unit: its unit, if the file says it.
        role: `input`, `output`, `time`, or empty while nobody has said.
        note: why it holds no numbers, if it does not.
    """

    name: str
    values: Float[np.ndarray, " N"]
    unit: str = ""
    role: str = ""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Channels:
    """What is in a file: channels that may differ in length, hold gaps, or be no measurement at all.

    Args:
        name: the file's name without its ending.
        channels: the channels.
        ts: the sampling time in seconds, if it is known.
        history: what was done to the channels since they were measured.
        row_word: what a sample is called: `line` of a text file, or `sample`.
        row_numbers: number of each sample; by default they count from zero.
    """

    name: str
    channels: tuple[Channel, ...]
    ts: float | None = None
    history: tuple[str, ...] = ()
    row_word: str = "sample"
    row_numbers: Sequence[int] | None = None

    @classmethod
    def from_record(cls, record: Record) -> Channels:
        """The channels of a record, time first."""
        inputs = zip(record.input_names, record.u.T, record.input_units, strict=True)
        outputs = zip(record.output_names, record.y.T, record.output_units, strict=True)
        channels = (
            Channel("time", record.t, "s", "time"),
            *(Channel(name, values, unit, "input") for name, values, unit in inputs),
            *(Channel(name, values, unit, "output") for name, values, unit in outputs),
        )
        return cls(record.name, channels, history=record.history)

    def with_role(self, role: str) -> tuple[Channel, ...]:
        """The channels of one role."""
        return tuple(channel for channel in self.channels if channel.role == role)


def read_channels(
    source: Any,
    *,
    inputs: Keys | None = None,
    outputs: Keys | None = None,
    ts: float | None = None,
    time: Key | None = None,
    time_format: str | None = None,
) -> Channels:
    """Read the channels of a file as they are, to look at them.

    Args:
        source: what `read` takes: a path, a data frame, a mapping.
        inputs: names or positions of the inputs, if that is known already.
        outputs: names or positions of the outputs; with these, only the named channels are read.
        ts: sampling time in seconds, if it is known.
        time: name or position of the time stamps, if it is known.
        time_format: how dates are written that are no ISO 8601, as for `read`.

    Returns:
        All channels, also those that hold text or nothing.

    Raises:
        DataError: the file is damaged, or an unknown channel was named.
        MissingExtraError: the library for this kind of file is not installed.

    Example:
        >>> read_channels({"t": [0.0, 1.0], "note": ["on", "off"]}).channels[0].values
        array([0., 1.])
    """
    with closing(open_table(source)) as table:
        # Every column stands for an output while none is named: only the clock is looked for then.
        named = outputs is not None or bool(table.outputs)
        choice = choose(table, inputs, outputs if named else range(len(table.columns)), ts=ts, time=time)
        roles = dict.fromkeys(choice.outputs if named else (), "output") | dict.fromkeys(choice.inputs, "input")
        if choice.time is not None:
            roles[choice.time] = "time"
        shown = _in_order(choice) if outputs is not None else range(len(table.columns))
        found = [_channel(table, i, roles.get(i, ""), time_format) for i in shown]
        said = tuple(f"{channel.name}: {how}" for channel, how in found if how)
        channels = tuple(channel for channel, _ in found)
        return Channels(table.name, channels, choice.ts, said, table.row_word, table.row_numbers)


def _in_order(choice: Choice) -> list[int]:
    """Time, inputs, outputs; each column once."""
    time = () if choice.time is None else (choice.time,)
    return list(dict.fromkeys((*time, *choice.inputs, *choice.outputs)))


def _channel(table: Table, index: int, role: str, time_format: str | None) -> tuple[Channel, str]:
    """A channel, and how its dates were read if it holds any."""
    column = table.columns[index]
    try:
        if role == "time":
            values, how = read_stamps(table, index, time_format)
            return Channel(column.name, values, "s", role), how
        return Channel(column.name, column.load(), column.unit, role), ""
    except DataError as error:
        if role:
            raise
        try:  # dates have no role while nobody has said that they are time
            values, how = read_stamps(table, index, time_format)
        except DataError as no_date:
            like_date = column.texts is not None and any(map(is_date, column.texts()[:1]))
            return Channel(column.name, np.empty(0), column.unit, role, str(no_date if like_date else error)), ""
        return Channel(column.name, values, "s", role), how
