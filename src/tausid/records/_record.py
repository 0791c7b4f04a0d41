"""What was measured, in physical units: one record of inputs, outputs and time, and sets of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from tausid.display import html_table
from tausid.errors import DataError

# Time steps that differ by less than this share of their median count as one clock.
UNIFORM_TOLERANCE = 1e-3
# Larger numbers are no measurements but marks of a logger for "nothing"; squares of smaller ones stay finite.
LARGEST = 1e100


@dataclass(frozen=True, eq=False, repr=False)
class Record:
    """One measured experiment: `u (N, nu)`, `y (N, ny)`, `t (N,)`, time along the first axis.

    NaN in `y` is a missing sample; NaN in `u` is an error. The arrays are private and read-only: copies, but of those
    of another record, which its parts share.
    Use `Record.from_arrays` for one-dimensional arrays or a sampling time instead of time stamps.

    Args:
        u: inputs, shape (N, nu), physical units.
        y: outputs, shape (N, ny), physical units.
        t: time stamps in seconds, shape (N,), strictly increasing.
        input_names: one name per input channel.
        output_names: one name per output channel.
        input_units: one unit per input channel, `""` where unknown.
        output_units: one unit per output channel, `""` where unknown.
        name: what to call the record in tables and messages.
        history: what was done to the measured samples, one description per step, the first step first.

    Raises:
        DataError: a shape, a length, a name, a unit, a NaN or the order of time breaks its rule.
    """

    u: Float[np.ndarray, "N nu"]
    y: Float[np.ndarray, "N ny"]
    t: Float[np.ndarray, "N"]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_units: tuple[str, ...]
    output_units: tuple[str, ...]
    name: str = "record"
    history: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("u", "y", "t"):
            object.__setattr__(self, field, _private(as_floats(getattr(self, field), field)))
        _check_shapes(self)
        _check_time(self.t, self.name)
        _check_values(self)

    @classmethod
    def from_arrays(
        cls,
        u: ArrayLike,
        y: ArrayLike,
        *,
        ts: float | None = None,
        t: ArrayLike | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        units: Mapping[str, str] | None = None,
        name: str = "record",
    ) -> Record:
        """Make a record from arrays; a one-dimensional array is one channel.

        Args:
            u: inputs, shape (N,) or (N, nu).
            y: outputs, shape (N,) or (N, ny).
            ts: sampling time in seconds; the record then starts at t = 0.
            t: time stamps in seconds, instead of `ts`.
            input_names: names of the inputs; by default `u`, or `u1`, `u2`, ...
            output_names: names of the outputs; by default `y`, or `y1`, `y2`, ...
            units: unit of each channel by its name; either all channels or none.
            name: what to call the record.

        Returns:
            The record.

        Raises:
            DataError: the arrays, the clock, the names or the units break a rule.

        Example:
            >>> Record.from_arrays([0.0, 1.0, 1.0], [0.0, 0.1, 0.3], ts=4.0).t
            array([0., 4., 8.])
        """
        inputs, outputs = as_columns(u, "u"), as_columns(y, "y")
        names_u = tuple(input_names) if input_names is not None else numbered("u", inputs.shape[1])
        names_y = tuple(output_names) if output_names is not None else numbered("y", outputs.shape[1])
        units_u, units_y = _units_of(names_u, names_y, units)
        time = make_clock(len(outputs), ts=ts, t=t)
        return cls(inputs, outputs, time, names_u, names_y, units_u, units_y, name)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        ts: float | None = None,
        time: str | None = None,
        units: Mapping[str, str] | None = None,
        name: str = "dataframe",
    ) -> Record:
        """Make a record from columns of a pandas or polars data frame.

        Args:
            frame: the data frame; anything with `columns` and `frame[name].to_numpy()`.
            inputs: names of the input columns.
            outputs: names of the output columns.
            ts: sampling time in seconds.
            time: name of the time column in seconds, instead of `ts`.
            units: unit of each channel by its name; either all channels or none.
            name: what to call the record.

        Returns:
            The record.

        Raises:
            DataError: a column is missing or not numeric, or the data break a rule of `Record`.
        """
        columns = [*inputs, *outputs] + ([time] if time is not None else [])
        missing = [column for column in columns if column not in list(frame.columns)]
        if missing:
            raise DataError(
                f"column {missing[0]!r} must be in the data frame; it has {', '.join(map(str, frame.columns))}. "
                "Name the inputs and outputs as the frame does."
            )
        return cls.from_arrays(
            _stack_columns(frame, inputs),
            _stack_columns(frame, outputs),
            ts=ts,
            t=None if time is None else _numeric_column(frame, time),
            input_names=inputs,
            output_names=outputs,
            units=units,
            name=name,
        )

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        channels = f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}"
        return f"Record({self.name!r}: {len(self)} samples, Ts = {self.ts:g} s, {channels})"

    def _repr_html_(self) -> str:
        rows = [
            (kind, name, unit, np.nanmin(column), np.nanmax(column))
            for kind, names, units, values in (
                ("input", self.input_names, self.input_units, self.u),
                ("output", self.output_names, self.output_units, self.y),
            )
            for name, unit, column in zip(names, units, values.T, strict=True)
        ]
        title = f"Record {self.name}: {len(self)} samples, Ts = {self.ts:g} s"
        return html_table(title, rows, header=("", "channel", "unit", "smallest", "largest"))

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return self.u.shape[1]

    @property
    def ny(self) -> int:
        """Number of outputs."""
        return self.y.shape[1]

    @cached_property
    def ts(self) -> float:
        """Sampling time in seconds: the median step of the clock."""
        return float(np.median(np.diff(self.t)))

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all time steps are equal to within a thousandth."""
        steps = np.diff(self.t)
        return bool(max(steps.max() - self.ts, self.ts - steps.min()) <= UNIFORM_TOLERANCE * self.ts)

    def part(self, start: int, stop: int, *, name: str | None = None) -> Record:
        """Samples `start` to `stop - 1` as a record of their own, time stamps kept; a view, not a copy.

        Args:
            start: first sample.
            stop: sample after the last one.
            name: what to call the part; by default the record's name and the range.

        Returns:
            The part.
        """
        label = name if name is not None else f"{self.name}[{start}:{stop}]"
        return replace(self, u=self.u[start:stop], y=self.y[start:stop], t=self.t[start:stop], name=label)


Records: TypeAlias = Record | Sequence[Record]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with their roles: what to train on, what to validate on, what to score at the end.

    Args:
        train: the training record.
        test: the test record; never seen by the `clean` protocol before the final score.
        validation: a held-out record, if the data come with their own.
        more_tests: further test records, with other excitations.
        name: what to call the dataset.
        score_skip: leading samples that the dataset's official score leaves out; 0 if it has none.

    Raises:
        DataError: the records do not have the same channels.
    """

    train: Record
    test: Record
    validation: Record | None = None
    more_tests: tuple[Record, ...] = ()
    name: str = "dataset"
    score_skip: int = 0

    def __post_init__(self) -> None:
        held_out = () if self.validation is None else (self.validation,)
        check_same_channels((self.train, *held_out, *self.tests))

    @property
    def tests(self) -> tuple[Record, ...]:
        """All test records, the main one first."""
        return (self.test, *self.more_tests)


def as_records(records: Records) -> tuple[Record, ...]:
    """One record or several, always as a tuple.

    Args:
        records: a record or a sequence of records.

    Returns:
        The records.

    Raises:
        DataError: there is none, or something else is among them.
    """
    several = (records,) if isinstance(records, Record) else tuple(records)
    if not several:
        raise DataError("`records` must hold at least one Record; got none. Read one with tausid.read_csv.")
    for item in several:
        if not isinstance(item, Record):
            raise DataError(
                f"`records` must hold only Record objects; got {type(item).__name__}. "
                "Make one with Record.from_arrays or tausid.read_csv."
            )
    return several


def check_same_channels(records: Iterable[Record]) -> None:
    """Check that all records have the same number of inputs and outputs.

    Args:
        records: the records.

    Raises:
        DataError: two of them differ.
    """
    first, *rest = records
    for other in rest:
        if (other.nu, other.ny) != (first.nu, first.ny):
            raise DataError(
                f"all records must have the same channels; {first.name!r} has {first.nu} inputs and {first.ny} "
                f"outputs, {other.name!r} has {other.nu} and {other.ny}. Choose the same columns for both."
            )


def as_columns(array: ArrayLike, name: str) -> Float[np.ndarray, "N n"]:
    """A numeric array as (N, n); one dimension is one channel.

    Args:
        array: numbers of shape (N,) or (N, n).
        name: what to call it in messages.

    Returns:
        A float64 array with two dimensions.

    Raises:
        DataError: not numbers, or neither one nor two dimensions.
    """
    values = as_floats(array, name)
    if values.ndim == 1:
        return values[:, None]
    if values.ndim != 2:
        raise DataError(
            f"`{name}` must have shape (samples,) or (samples, channels); got {values.shape}. "
            "Split a batch of experiments into several records."
        )
    return values


def as_floats(array: ArrayLike, name: str) -> Float[np.ndarray, "..."]:
    """An array of real numbers as float64.

    Args:
        array: the numbers.
        name: what to call it in messages.

    Returns:
        A float64 array.

    Raises:
        DataError: not numbers, or complex ones.
    """
    try:
        given = np.asarray(array)
        if given.dtype.kind in "cmM":
            raise TypeError(f"values of type {given.dtype}")
        return given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"`{name}` must be an array of numbers; got {error}. Convert it first.") from None


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Default channel names: the letter alone for one channel, numbered from one for several.

    Args:
        letter: `u` or `y`.
        count: number of channels.

    Returns:
        The names.
    """
    return (letter,) if count == 1 else tuple(f"{letter}{i + 1}" for i in range(count))


def make_clock(samples: int, *, ts: float | None, t: ArrayLike | None) -> Float[np.ndarray, "N"]:
    """Time stamps from a sampling time, or as given.

    Args:
        samples: number of samples.
        ts: sampling time in seconds.
        t: time stamps in seconds, instead of `ts`.

    Returns:
        The time stamps.

    Raises:
        DataError: both or neither are given, or `ts` is not positive.
    """
    if (ts is None) == (t is None):
        given = "neither" if ts is None else "both"
        raise DataError(
            f"a record needs either the sampling time `ts` or time stamps; got {given}. "
            "Give ts=... in seconds, or the time column."
        )
    if t is not None:
        stamps = as_columns(t, "t")
        if stamps.shape[1] != 1:
            raise DataError(f"`t` must be one column of time stamps; got {stamps.shape[1]}. Choose one.")
        return stamps[:, 0]
    if not (isinstance(ts, int | float | np.number) and np.isfinite(ts) and ts > 0):
        raise DataError(f"`ts` must be a positive number of seconds; got {ts!r}. Give the sampling time.")
    with np.errstate(over="ignore"):  # a clock that leaves the numbers is refused with its sample
        return np.arange(samples) * float(ts)


def _private(array: ArrayLike) -> Float[np.ndarray, "..."]:
    """A read-only float64 array that no one else can write to: the same one where that holds already."""
    if isinstance(array, np.ndarray) and array.dtype == np.float64 and array.flags.c_contiguous:
        owner = array if array.base is None else array.base
        if isinstance(owner, np.ndarray) and owner.base is None and not owner.flags.writeable:
            return array
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def _check_shapes(record: Record) -> None:
    for field, dimensions in (("u", 2), ("y", 2), ("t", 1)):
        got = np.ndim(getattr(record, field))
        if got != dimensions:
            raise DataError(
                f"`{field}` of {record.name!r} must have {dimensions} dimension(s), time first; got {got}. "
                "Use Record.from_arrays for one-dimensional signals."
            )
    n_u, n_y, n_t = len(record.u), len(record.y), len(record.t)
    if not n_u == n_y == n_t:
        raise DataError(
            f"`u`, `y` and `t` of {record.name!r} must have as many samples; got {n_u}, {n_y} and {n_t}. "
            "Trim them to the shared interval."
        )
    if n_t < 2:
        raise DataError(f"record {record.name!r} must have at least two samples; got {n_t}. Measure longer.")
    if record.ny < 1:
        raise DataError(f"record {record.name!r} must have at least one output; got none. Name an output.")
    for kind, n in (("input", record.nu), ("output", record.ny)):
        for what in ("names", "units"):
            got = getattr(record, f"{kind}_{what}")
            if not all(isinstance(text, str) for text in got):
                raise DataError(f"`{kind}_{what}` must be text; got {got!r}. Write them in quotes.")
            if len(got) != n:
                raise DataError(
                    f"`{kind}_{what}` must have one entry per {kind} channel; got {len(got)} for {n} channels."
                    f" Give {n}."
                )
    names = (*record.input_names, *record.output_names)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(
            f"channel names must differ; got {twice[0]!r} twice. Rename one, or use each column in one role only."
        )


def _check_time(t: np.ndarray, name: str) -> None:
    if not np.all(np.abs(t) <= LARGEST):
        row = int(np.flatnonzero(~(np.abs(t) <= LARGEST))[0])
        raise DataError(f"time of {name!r} must be finite; sample {row} is {t[row]}. Drop that row.")
    backwards = np.flatnonzero(np.diff(t) <= 0)
    if len(backwards):
        row = int(backwards[0])
        raise DataError(
            f"time of {name!r} must increase from sample to sample; sample {row} is at {t[row]:g} s and sample "
            f"{row + 1} at {t[row + 1]:g} s. Sort the rows, drop repeats, or split into several records."
        )


def _check_values(record: Record) -> None:
    bad_u = np.argwhere(~np.isfinite(record.u))
    if len(bad_u):
        row, channel = bad_u[0]
        raise DataError(
            f"input {record.input_names[channel]!r} of {record.name!r} must be known at every sample; {len(bad_u)} "
            f"values are NaN or infinite, the first at sample {row}. Fill them in or cut those rows out."
        )
    _check_size(record)
    bad_y = np.argwhere(np.isinf(record.y))
    if len(bad_y):
        row, channel = bad_y[0]
        raise DataError(
            f"output {record.output_names[channel]!r} of {record.name!r} must be finite, or NaN where missing; "
            f"sample {row} is infinite. Replace it by NaN."
        )
    for channel, name in enumerate(record.output_names):
        if np.all(np.isnan(record.y[:, channel])):
            raise DataError(
                f"output {name!r} of {record.name!r} must have measured samples; all are NaN. Choose another column."
            )


def _check_size(record: Record) -> None:
    for names, values in ((record.input_names, record.u), (record.output_names, record.y)):
        large = np.argwhere(np.isfinite(values) & (np.abs(values) > LARGEST))
        if len(large):
            row, channel = large[0]
            raise DataError(
                f"channel {names[channel]!r} of {record.name!r} must be below {LARGEST:g} in size; sample {row} is "
                f"{values[row, channel]:g}, as some loggers mark what they did not measure. Replace it by NaN."
            )


def _units_of(
    names_u: tuple[str, ...], names_y: tuple[str, ...], units: Mapping[str, str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if units is None:
        return ("",) * len(names_u), ("",) * len(names_y)
    known = (*names_u, *names_y)
    for name in units:
        if name not in known:
            raise DataError(
                f"`units` must name channels of the record; got {name!r}, channels are {', '.join(known)}. "
                "Correct the name."
            )
    for name in known:
        if name not in units:
            raise DataError(
                f"`units` must give a unit for every channel; {name!r} has none. Add it, or leave `units` out."
            )
    return tuple(units[n] for n in names_u), tuple(units[n] for n in names_y)


def _numeric_column(frame: Any, name: str) -> np.ndarray:
    return as_columns(frame[name].to_numpy(), name)[:, 0]


def _stack_columns(frame: Any, names: Sequence[str]) -> np.ndarray:
    columns = [_numeric_column(frame, name) for name in names]
    return np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0))
