"""Options that several commands share, and how they become records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tausid.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tausid.data.records import Dataset, Record
    from tausid.model.tau import Tau

Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...", help="CSV, MATLAB, Parquet or HDF5 files, folders of them, or @NAME of a known dataset."
    ),
]
OneFile = Annotated[
    str, typer.Argument(metavar="DATA", help="A CSV, MATLAB, Parquet or HDF5 file, or @NAME of a known dataset.")
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that `tausid fit` wrote.")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="Input column; repeat for several.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Output column; repeat for several.")]
Ts = Annotated[float | None, typer.Option("--ts", help="Sampling time in seconds.")]
Time = Annotated[str | None, typer.Option("--time", help="Time column in seconds, instead of --ts.")]
Units = Annotated[list[str] | None, typer.Option("--unit", help="Unit of a channel, as NAME=UNIT; all or none.")]
Fill = Annotated[str | None, typer.Option("--fill", help="Missing inputs: hold or linear; else an error.")]
Prepare = Annotated[
    list[str] | None,
    typer.Option("--prepare", help='A step such as "decimate 10" or "trim 0 20"; repeat for several, in order.'),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Skip = Annotated[
    int | None, typer.Option("--skip", min=0, help="Leading samples not to score; max(na, nb) by default.")
]
X0 = Annotated[
    str | None,
    typer.Option("--x0", help="Initial state: encoder, or refine (least squares over the next samples)."),
]
Part = Annotated[
    str | None, typer.Option("--part", help="Which part of a known dataset: train or test; test by default.")
]


HAVE_OPTIONS = (
    "nx",
    "seed",
    "physics",
    "ensemble",
    "keep",
    "workers",
    "recipe",
    "protocol",
    "tau",
    "out",
    "resume",
    "overwrite",
    "test",
    "validation",
)


@dataclass(frozen=True)
class Columns:
    """How a file is to be read, as the command line says it.

    Args:
        inputs: input columns.
        outputs: output columns.
        ts: sampling time in seconds.
        time: time column, instead of `ts`.
        units: units of the channels, as NAME=UNIT.
        fill: what to do about missing inputs.
        prepare: steps of preparation, in order.
    """

    inputs: Sequence[str] | None
    outputs: Sequence[str] | None
    ts: float | None
    time: str | None
    units: Sequence[str] | None = None
    fill: str | None = None
    prepare: Sequence[str] | None = None


@dataclass(frozen=True)
class FitData:
    """What a fit is given.

    Args:
        train: the training records.
        validation: records to choose the best model with; may be empty.
        tests: records to score at the end; may be empty.
        name: what to call the data.
    """

    train: tuple[Record, ...]
    validation: tuple[Record, ...]
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
    from tausid.data.preparation import prepare
    from tausid.data.readers import read

    units = dict(split_pair(pair, "--unit", "pump=V") for pair in columns.units) if columns.units else None
    inputs = list(columns.inputs) if columns.inputs else None
    outputs = list(columns.outputs) if columns.outputs else None
    record = read(
        data, inputs=inputs, outputs=outputs, ts=columns.ts, time=columns.time, units=units, fill=columns.fill
    )
    return prepare(record, *(columns.prepare or ()))


def read_records(data: Sequence[str], columns: Columns) -> tuple[Record, ...]:
    """Records from files, and from all files of folders; each has a name of its own.

    Args:
        data: paths of files and folders.
        columns: how to read them.

    Returns:
        The records, those of a folder in the order of their names.

    Raises:
        DataError: a folder without files, or a file breaks a rule.
    """
    paths = [path for item in data for path in _files(item)]
    records = [read_record(path, columns) for path in paths]
    names = [record.name for record in records]
    return tuple(
        record if names.count(record.name) == 1 else replace(record, name=path)
        for record, path in zip(records, paths, strict=True)
    )


def _files(item: str) -> list[str]:
    if not Path(item).is_dir():
        return [item]
    from tausid.data.readers import ENDINGS

    found = sorted(str(path) for path in Path(item).iterdir() if path.suffix.lower() in ENDINGS)
    if not found:
        raise DataError(
            f"folder {item!r} must hold data files ({', '.join(ENDINGS)}); it has none. Check the path, or name the "
            "files."
        )
    return found


def read_part(data: Sequence[str], columns: Columns, part: str | None) -> tuple[Record, ...]:
    """The records to simulate: those of files, or one part of a known dataset.

    Args:
        data: paths of files and folders, or `@NAME`.
        columns: how to read files.
        part: `train` or `test`, for a known dataset; None is `test`.

    Returns:
        The records.

    Raises:
        ConfigError: an unknown part, or options that do not go with the data.
        DataError: the data are not available, or break a rule.
    """
    known = _known_dataset(data)
    if known is None:
        if part is not None:
            raise ConfigError(f"`--part` is for known datasets, @NAME; {data[0]} is a file. Leave it out.")
        return read_records(data, columns)
    if part not in (None, "train", "test"):
        raise ConfigError(f"`--part` must be train or test; got {part!r}. Choose one of these.")
    dataset = _load(known, columns)
    return _prepared((dataset.train,) if part == "train" else dataset.tests, columns)


def _prepared(records: Sequence[Record], columns: Columns) -> tuple[Record, ...]:
    from tausid.data.preparation import prepare

    return tuple(prepare(record, *(columns.prepare or ())) for record in records)


def read_fit_data(
    data: Sequence[str],
    columns: Columns,
    *,
    validation: Sequence[str] | None,
    test: Sequence[str] | None,
    test_inputs: Sequence[str] | None,
    test_outputs: Sequence[str] | None,
) -> FitData:
    """Training data and, where there are any, validation and test data.

    Args:
        data: paths of files and folders, or `@NAME`.
        columns: how to read files.
        validation: paths of the validation files.
        test: paths of the test files; the training file where only test columns are given.
        test_inputs: input columns of the test records; by default the training records'.
        test_outputs: output columns of the test records; by default the training records'.

    Returns:
        The records.

    Raises:
        ConfigError: options that do not go with the data.
        DataError: the data are not available, or break a rule.
    """
    known = _known_dataset(data)
    if known is not None:
        others = {"--test": test, "--test-input": test_inputs, "--test-output": test_outputs}
        dataset = _load(known, columns, **others, **{"--validation": validation})
        return FitData(_prepared((dataset.train,), columns), (), _prepared(dataset.tests, columns), dataset.name)
    train = read_records(data, columns)
    held_out = read_records(validation, columns) if validation else ()
    name = Path(data[0]).resolve().stem
    if not test and not test_inputs and not test_outputs:
        return FitData(train, held_out, (), name)
    if not test and not test_outputs:
        raise DataError(
            "test columns of the same file must include an output; got only --test-input. Add --test-output."
        )
    also = replace(columns, inputs=test_inputs or columns.inputs, outputs=test_outputs or columns.outputs, units=None)
    return FitData(train, held_out, read_records(test or data, also), name)


def _known_dataset(data: Sequence[str]) -> str | None:
    named = [item for item in data if item.startswith("@")]
    if named and len(data) > 1:
        raise ConfigError(
            f"a known dataset must come alone; got {' '.join(data)}. Give {named[0]}, or files and folders."
        )
    return named[0] if named else None


def data_sums(data: Sequence[str]) -> dict[str, str]:
    """Checksums of the files that a fit was given.

    Args:
        data: paths of files and folders, or `@NAME`.

    Returns:
        sha256 by the name of the file.
    """
    from tausid.data import datasets
    from tausid.results.runs import file_sums

    known = [path for item in data if item.startswith("@") for path in datasets.fetch(item.removeprefix("@"))]
    return file_sums([*known, *(path for item in data if not item.startswith("@") for path in _files(item))])


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
    from tausid.model.tau import Tau

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
        key, value = split_pair(pair, "--set", "trainer.iterations=60")
        if key in HAVE_OPTIONS:
            raise ConfigError(f"`--set` is for settings of the recipe; {key!r} has an option. Use --{key}.")
        settings[key] = _value(value)
    return settings


def parse_shortcuts(given: Mapping[str, int | str | None]) -> dict[str, Any]:
    """Settings that have an option of their own.

    Args:
        given: what was given by key; None where nothing was.

    Returns:
        Values by key.
    """
    found: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if "structure.hidden" in found:
        found["structure.hidden"] = _value(f"[{found['structure.hidden'].strip('[]')}]")
    return found


def _value(text: str) -> Any:
    """A number or a list where it reads as JSON, text otherwise."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def split_pair(pair: str, option: str, example: str) -> tuple[str, str]:
    """Both sides of KEY=VALUE.

    Args:
        pair: what was given.
        option: the option it was given to.
        example: a right one, for the message.

    Returns:
        Key and value.

    Raises:
        ConfigError: no `=`.
    """
    key, equals, value = pair.partition("=")
    if not equals:
        raise ConfigError(f"`{option}` must be KEY=VALUE; got {pair!r}. Write, for instance, {option} {example}.")
    return key, value


def _load(data: str, columns: Columns, **options: Any) -> Dataset:
    """A known dataset; options that describe a file are refused, not ignored."""
    from tausid.data import datasets

    described = {"--input": columns.inputs, "--output": columns.outputs, "--ts": columns.ts, "--time": columns.time}
    for name, value in {**described, "--unit": columns.units, "--fill": columns.fill, **options}.items():
        if value:
            raise ConfigError(f"`{name}` is for files; {data} is a known dataset with its own channels. Leave it out.")
    return datasets.load(data.removeprefix("@"))
