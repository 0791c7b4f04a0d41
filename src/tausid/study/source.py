"""Where the records of a study come from, in a form that travels to workers."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tausid import datasets
from tausid.errors import ConfigError, unknown_name
from tausid.preparation import prepare
from tausid.readers import read
from tausid.records import Record


@dataclass(frozen=True)
class DataSource:
    """Records by name or by file; workers load them by themselves.

    Args:
        train: `@NAME` of a known dataset, or a file.
        inputs: input columns of a file.
        outputs: output columns of a file.
        ts: sampling time of a file in seconds.
        time: time column of a file, instead of `ts`.
        fill: how missing inputs of a file are filled: `hold` or `linear`.
        prepare: steps such as `decimate 10`, in order, for all records.
        test: test file; the training file where only test columns are given.
        test_inputs: input columns of the test record; by default the training record's.
        test_outputs: output columns of the test record; by default the training record's.
    """

    train: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    ts: float | None = None
    time: str | None = None
    fill: str | None = None
    prepare: tuple[str, ...] = ()
    test: str | None = None
    test_inputs: tuple[str, ...] = ()
    test_outputs: tuple[str, ...] = ()


def source_from_table(value: Any, folder: Path) -> DataSource:
    """A source from what a spec says: `@NAME`, or a table with the fields of `DataSource`.

    Args:
        value: what the spec says.
        folder: where relative paths start.

    Returns:
        The source.

    Raises:
        ConfigError: an unknown key, or neither a name nor a table.
    """
    if isinstance(value, str) and value.startswith("@"):
        return DataSource(value)
    if not isinstance(value, dict) or "train" not in value:
        raise ConfigError(f"`data` must be @NAME or a table with the key train; got {value!r}. See docs/studies.md.")
    known = [field.name for field in fields(DataSource)]
    for key in value:
        if key not in known:
            raise ConfigError(unknown_name("key of [data]", key, known))
    plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
    for key in ("train", "test"):
        if key in plain:
            plain[key] = _path(str(plain[key]), folder)
    return DataSource(**plain)


def _path(name: str, folder: Path) -> str:
    return name if name.startswith("@") else str((folder / name).resolve())


@functools.lru_cache(maxsize=4)
def load_source(source: DataSource) -> tuple[Record, tuple[Record, ...]]:
    """The training record, and the test records; read once per process.

    Args:
        source: where they come from.

    Returns:
        Both.

    Raises:
        DataError: the data cannot be had, or break a rule.
    """
    if source.train.startswith("@"):
        dataset = datasets.load(source.train.removeprefix("@"))
        tests = tuple(prepare(record, *source.prepare) for record in dataset.tests)
        return prepare(dataset.train, *source.prepare), tests
    train = _read(source.train, source.inputs, source.outputs, source)
    if source.test is None and not source.test_outputs:
        return train, ()
    inputs, outputs = source.test_inputs or source.inputs, source.test_outputs or source.outputs
    return train, (_read(source.test or source.train, inputs, outputs, source),)


def _read(path: str, inputs: tuple[str, ...], outputs: tuple[str, ...], source: DataSource) -> Record:
    record = read(
        path,
        inputs=list(inputs) or None,
        outputs=list(outputs) or None,
        ts=source.ts,
        time=source.time,
        fill=source.fill,
    )
    return prepare(record, *source.prepare)
