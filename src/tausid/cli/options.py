"""Options that several commands share, and how they become records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tausid.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tausid.records import Dataset, Record
    from tausid.tau import Tau

Data = Annotated[str, typer.Argument(metavar="DATA", help="A CSV file, or @NAME of a known dataset.")]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that `tausid fit` wrote.")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="Input column; repeat for several.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Output column; repeat for several.")]
Ts = Annotated[float | None, typer.Option("--ts", help="Sampling time in seconds.")]
Time = Annotated[str | None, typer.Option("--time", help="Time column in seconds, instead of --ts.")]
Units = Annotated[list[str] | None, typer.Option("--unit", help="Unit of a channel, as NAME=UNIT; all or none.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]
Skip = Annotated[
    int | None, typer.Option("--skip", min=0, help="Leading samples not to score; max(na, nb) by default.")
]
Part = Annotated[
    str | None, typer.Option("--part", help="Which part of a known dataset: train or test; test by default.")
]


HAVE_OPTIONS = ("nx", "seed", "recipe", "protocol", "tau", "out", "resume", "overwrite", "test")


@dataclass(frozen=True)
class Columns:
    """How a file is to be read, as the command line says it.

    Args:
        inputs: input columns.
        outputs: output columns.
        ts: sampling time in seconds.
        time: time column, instead of `ts`.
        units: units of the channels, as NAME=UNIT.
    """

    inputs: Sequence[str] | None
    outputs: Sequence[str] | None
    ts: float | None
    time: str | None
    units: Sequence[str] | None = None


@dataclass(frozen=True)
class FitData:
    """What a fit is given.

    Args:
        train: the training record.
        tests: records to score at the end; may be empty.
        name: what to call the data.
    """

    train: Record
    tests: tuple[Record, ...]
    name: str


def read_record(data: str, columns: Columns) -> Record:
    """A record from a file.

    Args:
        data: path of the file.
        columns: how to read it.

    Returns:
        The record.

    Raises:
        DataError: no output column, or the file breaks a rule.
    """
    from tausid.readers import csv_columns, read_csv

    if not columns.outputs:
        raise DataError(
            f"a fit or a simulation must know its columns; no --output was given. {data} has "
            f"{', '.join(csv_columns(data))}: name inputs with --input and outputs with --output."
        )
    units = dict(_split_pair(pair, "--unit", "pump=V") for pair in columns.units) if columns.units else None
    inputs, outputs = list(columns.inputs or ()), list(columns.outputs)
    return read_csv(data, inputs=inputs, outputs=outputs, ts=columns.ts, time=columns.time, units=units)


def read_part(data: str, columns: Columns, part: str | None) -> tuple[Record, ...]:
    """The records to simulate: those of a file, or one part of a known dataset.

    Args:
        data: path of a file, or `@NAME`.
        columns: how to read a file.
        part: `train` or `test`, for a known dataset; None is `test`.

    Returns:
        The records.

    Raises:
        ConfigError: an unknown part, or options that do not go with the data.
        DataError: the data cannot be had, or break a rule.
    """
    if not data.startswith("@"):
        if part is not None:
            raise ConfigError(f"`--part` is for known datasets, @NAME; {data} is a file. Leave it out.")
        return (read_record(data, columns),)
    if part not in (None, "train", "test"):
        raise ConfigError(f"`--part` must be train or test; got {part!r}. Choose one of these.")
    dataset = _load(data, columns)
    return (dataset.train,) if part == "train" else dataset.tests


def read_fit_data(
    data: str,
    columns: Columns,
    *,
    test: str | None,
    test_inputs: Sequence[str] | None,
    test_outputs: Sequence[str] | None,
) -> FitData:
    """Training data and, where there is any, test data.

    Args:
        data: path of a file, or `@NAME`.
        columns: how to read a file.
        test: path of the test file; the training file where only test columns are given.
        test_inputs: input columns of the test record; by default the training record's.
        test_outputs: output columns of the test record; by default the training record's.

    Returns:
        The records.

    Raises:
        ConfigError: options that do not go with the data.
        DataError: the data cannot be had, or break a rule.
    """
    if data.startswith("@"):
        tests = {"--test": test, "--test-input": test_inputs, "--test-output": test_outputs}
        dataset = _load(data, columns, **tests)
        return FitData(dataset.train, dataset.tests, dataset.name)
    train = read_record(data, columns)
    name = Path(data).stem
    if test is None and not test_inputs and not test_outputs:
        return FitData(train, (), name)
    if test is None and not test_outputs:
        raise DataError(
            "test columns of the same file must include an output; got only --test-input. Add --test-output."
        )
    others = replace(columns, inputs=test_inputs or columns.inputs, outputs=test_outputs or columns.outputs, units=None)
    return FitData(train, (read_record(test or data, others),), name)


def data_sums(data: str, test: str | None) -> dict[str, str]:
    """Checksums of the files that a fit was given.

    Args:
        data: path of a file, or `@NAME`.
        test: path of the test file, or None.

    Returns:
        sha256 by the name of the file.
    """
    from tausid import datasets
    from tausid.runs import file_sums

    if data.startswith("@"):
        return file_sums(datasets.fetch(data.removeprefix("@")))
    return file_sums([data, *([] if test is None else [test])])


def parse_tau(text: str, *, trainable: bool) -> float | list[float] | str | Tau:
    """Tau from the command line: the name of an estimator, seconds, or one per state separated by commas.

    Args:
        text: what was given.
        trainable: whether it is only the start of a trained tau.

    Returns:
        The name, one number, several, or a `Tau` to be trained.

    Raises:
        ConfigError: not numbers and no name.
    """
    if text[:1].isalpha():
        return f"{text}-trained" if trainable else text
    from tausid.tau import Tau

    seconds = _seconds(text)
    return Tau(seconds, trainable=True) if trainable else seconds


def _seconds(text: str) -> float | list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"`--tau` must be bla, spectrum, trained, or seconds, one number or one per state separated by commas; "
            f"got {text!r}. Leave it out to have it estimated."
        ) from None
    return values[0] if len(values) == 1 else values


def parse_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Settings given as KEY=VALUE.

    Args:
        pairs: what was given.

    Returns:
        Values by key: numbers and lists where they read as JSON, text otherwise.

    Raises:
        ConfigError: no `=` in a pair.
    """
    settings: dict[str, Any] = {}
    for pair in pairs or ():
        key, value = _split_pair(pair, "--set", "horizon=64")
        if key in HAVE_OPTIONS:
            raise ConfigError(f"`--set` is for settings without an option of their own; got {key!r}. Use --{key}.")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return settings


def _split_pair(pair: str, option: str, example: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise ConfigError(f"`{option}` must be KEY=VALUE; got {pair!r}. Write, for instance, {option} {example}.")
    return key, value


def _load(data: str, columns: Columns, **options: Any) -> Dataset:
    """A known dataset; options that describe a file are refused, not ignored."""
    from tausid import datasets

    described = {"--input": columns.inputs, "--output": columns.outputs, "--ts": columns.ts, "--time": columns.time}
    for name, value in {**described, "--unit": columns.units, **options}.items():
        if value:
            raise ConfigError(f"`{name}` is for files; {data} is a known dataset with its own channels. Leave it out.")
    return datasets.load(data.removeprefix("@"))
