"""From a user's words to records: files, folders and `@NAME` of a known dataset, for command line and studies alike."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tausid.data.readers import ENDINGS, read
from tausid.data.records import Dataset, Record
from tausid.errors import ConfigError, DataError


@dataclass(frozen=True)
class Columns:
    """How a file is to be read."""

    inputs: Sequence[str] | None  # input columns
    outputs: Sequence[str] | None  # output columns
    ts: float | None  # sampling time in seconds
    time: str | None  # time column, instead of `ts`
    units: Mapping[str, str] | None = None  # unit of each channel by its name
    fill: str | None = None  # what to do about missing inputs
    prepare: Sequence[str] | None = None  # steps of preparation, in order
    time_format: str | None = None  # how dates of the time column are written
    inputs_alone: bool = False  # whether a file need have no outputs, as for a simulation

    @property
    def options(self) -> dict[str, Any]:
        """What was given, as arguments of `read` and as plain JSON values."""
        ts = int(self.ts) if self.ts is not None and float(self.ts).is_integer() else self.ts
        given = {
            "inputs": list(self.inputs or ()),
            "outputs": list(self.outputs or ()),
            "ts": ts,
            "time": self.time,
            "time_format": self.time_format,
            "units": dict(self.units or {}),
            "fill": self.fill,
            "prepare": list(self.prepare or ()),
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class FitData:
    """What a fit is given."""

    train: tuple[Record, ...]  # the training records
    validation: tuple[Record, ...]  # records to choose the best model with; may be empty
    tests: tuple[Record, ...]  # records to score at the end; may be empty
    name: str  # what to call the data


def read_record(data: str, columns: Columns) -> Record:
    """A record from a file."""
    inputs = list(columns.inputs) if columns.inputs else None
    outputs = list(columns.outputs) if columns.outputs else [] if columns.inputs_alone else None
    return read(
        data,
        inputs=inputs,
        outputs=outputs,
        ts=columns.ts,
        time=columns.time,
        time_format=columns.time_format,
        units=columns.units,
        fill=columns.fill,
        prepare=columns.prepare or (),
    )


def read_records(data: Sequence[str], columns: Columns) -> tuple[Record, ...]:
    """Records from files, and from all files of folders; each has a name of its own."""
    paths = files_of(data)
    records = [read_record(path, columns) for path in paths]
    names = [record.name for record in records]
    return tuple(
        record if names.count(record.name) == 1 else replace(record, name=path)
        for record, path in zip(records, paths, strict=True)
    )


def files_of(data: Sequence[str]) -> list[str]:
    """The files behind names of files and folders."""
    return [path for item in data for path in _files(item)]


def _files(item: str) -> list[str]:
    if not Path(item).is_dir():
        return [item]
    found = sorted(str(path) for path in Path(item).iterdir() if path.suffix.lower() in ENDINGS)
    if not found:
        raise DataError(
            f"folder {item!r} must hold data files ({', '.join(ENDINGS)}); it has none. Check the path, or name the "
            "files."
        )
    return found


def read_part(data: Sequence[str], columns: Columns, part: str | None) -> tuple[Record, ...]:
    """The records to simulate: those of files, or one part of a known dataset."""
    known = _known_dataset(data)
    if known is None:
        if part is not None:
            raise ConfigError(f"`part` is for datasets by name, @NAME; {data[0]} is a file. Leave it out.")
        return read_records(data, columns)
    if part not in (None, "train", "test"):
        raise ConfigError(f"`part` must be train or test; got {part!r}. Choose one of these.")
    dataset = _load(known, columns)
    return _prepared((dataset.train,) if part == "train" else dataset.tests, columns)


def read_official(data: Sequence[str], columns: Columns, **options: Any) -> Dataset:
    """A benchmark as it is scored officially; options that would score it otherwise are refused."""
    known = _known_dataset(data)
    if known is None:
        raise ConfigError(f"`--official` is for benchmarks, @NAME; {data[0]} is a file. Leave it out.")
    for name, value in {"prepare": columns.prepare, **options}.items():
        if value is not None:
            raise ConfigError(f"`--{name}` must not come with --official, which has its own rules. Leave one out.")
    return _load(known, columns)


def _prepared(records: Sequence[Record], columns: Columns) -> tuple[Record, ...]:
    if not columns.prepare:
        return tuple(records)
    from tausid.data.steps import prepare

    return tuple(prepare(record, *columns.prepare) for record in records)


def read_fit_data(
    data: Sequence[str],
    columns: Columns,
    *,
    validation: Sequence[str] | None,
    test: Sequence[str] | None,
    test_inputs: Sequence[str] | None,
    test_outputs: Sequence[str] | None,
) -> FitData:
    """Training data and, where there are any, validation and test data."""
    known = _known_dataset(data)
    if known is not None:
        others = {"test": test, "test input": test_inputs, "test output": test_outputs, "validation": validation}
        dataset = _load(known, columns, **others)
        return FitData(_prepared((dataset.train,), columns), (), _prepared(dataset.tests, columns), dataset.name)
    train = read_records(data, columns)
    held_out = read_records(validation, columns) if validation else ()
    name = Path(data[0]).resolve().stem
    if not test and not test_inputs and not test_outputs:
        return FitData(train, held_out, (), name)
    if not test and not test_outputs:
        raise DataError("test columns of the same file must include an output; got only inputs. Name a test output.")
    also = replace(columns, inputs=test_inputs or columns.inputs, outputs=test_outputs or columns.outputs, units=None)
    tests = read_records(test or data, also)
    if (tests[0].nu, tests[0].ny) == (train[0].nu, train[0].ny):  # the same channels, by other names
        tests = tuple(r.renamed(inputs=train[0].input_names, outputs=train[0].output_names) for r in tests)
    return FitData(train, held_out, tests, name)


def _known_dataset(data: Sequence[str]) -> str | None:
    named = [item for item in data if item.startswith("@")]
    if named and len(data) > 1:
        raise ConfigError(
            f"a dataset by name must be the only data; got {' '.join(data)}. Give {named[0]}, or files and folders."
        )
    return named[0] if named else None


def source_sums(data: Sequence[str]) -> dict[str, str]:
    """sha256 of the files behind what was given, by their names: those of folders and of known datasets, too."""
    from tausid.data import datasets

    known = [path for item in data if item.startswith("@") for path in datasets.fetch(item.removeprefix("@"))]
    files = [*known, *(Path(path) for item in data if not item.startswith("@") for path in _files(item))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _load(data: str, columns: Columns, **options: Any) -> Dataset:
    """A known dataset; options that describe a file are refused, not ignored."""
    described: dict[str, Any] = {
        "input": columns.inputs,
        "output": columns.outputs,
        "ts": columns.ts,
        "time": columns.time,
    }
    described |= {"time format": columns.time_format, "unit": columns.units, "fill": columns.fill}
    for name, value in {**described, **options}.items():
        if value:
            raise ConfigError(f"`{name}` is for files; {data} is a dataset with channels of its own. Leave it out.")
    from tausid.data import datasets

    return datasets.load(data.removeprefix("@"))
