"""Where the records of a study come from, in a form that travels to workers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tausid.data.records import Record
from tausid.data.sources import Columns, read_fit_data
from tausid.errors import ConfigError, unknown_name

# Keys of [data] that are lists, each with an example.
LISTS = {
    "inputs": '["u"]',
    "outputs": '["y"]',
    "prepare": '["decimate 10"]',
    "test_inputs": '["u"]',
    "test_outputs": '["y"]',
}


@dataclass(frozen=True)
class DataSource:
    """Records by name or by file; workers load them by themselves."""

    train: str  # `@NAME` of a known dataset, or a file
    inputs: tuple[str, ...] = ()  # input columns of a file
    outputs: tuple[str, ...] = ()  # output columns of a file
    ts: float | None = None  # sampling time of a file in seconds
    time: str | None = None  # time column of a file, instead of `ts`
    time_format: str | None = None  # how dates of the time column are written
    fill: str | None = None  # how missing inputs of a file are filled: `hold` or `linear`
    prepare: tuple[str, ...] = ()  # steps such as `decimate 10`, in order, for all records
    test: str | None = None  # test file; the training file where only test columns are given
    test_inputs: tuple[str, ...] = ()  # input columns of the test record; by default the training record's
    test_outputs: tuple[str, ...] = ()  # output columns of the test record; by default the training record's


@dataclass(frozen=True, eq=False)
class RecordSource:
    """Records in memory; they travel to workers with every run."""

    train: tuple[Record, ...]  # training records
    tests: tuple[Record, ...] = ()  # test records


def sources_from_spec(value: Any, folder: Path) -> dict[str, DataSource]:
    """The sources of a spec, one or a list of them, by what the data are called."""
    found: dict[str, DataSource] = {}
    for one in value if isinstance(value, list) else [value]:
        source = source_from_table(one, folder)
        name = source.train.removeprefix("@") if source.train.startswith("@") else Path(source.train).stem
        if name in found:
            raise ConfigError(f"data of a study must differ in their names; {name!r} comes twice. Remove one of them.")
        found[name] = source
    if not found:
        raise ConfigError('`data` must name at least one; got an empty list. Write data = ["@linear", "@duffing"].')
    return found


def source_from_table(value: Any, folder: Path) -> DataSource:
    """A source from what a spec says: `@NAME`, or a table with the fields of `DataSource`."""
    if isinstance(value, str) and value.startswith("@"):
        return DataSource(value)
    if not isinstance(value, dict) or "train" not in value:
        raise ConfigError(
            f"`data` must be @NAME, a table with the key train, or a list of these; got {value!r}. See docs/studies.md."
        )
    known = [field.name for field in fields(DataSource)]
    for key, given in value.items():
        if key not in known:
            raise ConfigError(unknown_name("key of [data]", key, known))
        _check_value(key, given)
    _check_dataset(value)
    plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
    for key in ("train", "test"):
        if key in plain:
            plain[key] = _path(plain[key], folder)
    return DataSource(**plain)


def _check_value(key: str, value: Any) -> None:
    if key == "ts":
        whole, rule = isinstance(value, int | float) and not isinstance(value, bool), "a number of seconds"
    elif key in LISTS:
        whole = isinstance(value, list) and all(isinstance(text, str) for text in value)
        rule = f"a list of texts, such as {LISTS[key]}"
    else:
        whole, rule = isinstance(value, str) and bool(value), "text"
    if not whole:
        raise ConfigError(f"`{key}` of [data] must be {rule}; got {value!r}. Correct it.")


def _check_dataset(table: Mapping[str, Any]) -> None:
    """A dataset by name brings its own columns, clock and test records: what would be ignored is refused."""
    if not table["train"].startswith("@"):
        if table.get("test", "").startswith("@"):
            raise ConfigError(
                f"`test` of [data] must be a file; got {table['test']!r}. Use the dataset as `train`, too."
            )
        return
    ignored = [key for key in table if key not in ("train", "prepare")]
    if ignored:
        raise ConfigError(
            f"[data] of a dataset by name must have no keys but train and prepare; {table['train']} has its own "
            f"columns and test records, and got {', '.join(ignored)}. Leave them out."
        )


def _path(name: str, folder: Path) -> str:
    return name if name.startswith("@") else str((folder / name).resolve())


def load_source(source: DataSource | RecordSource) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """The training records, and the test records."""
    return (source.train, source.tests) if isinstance(source, RecordSource) else _read(source)


@functools.lru_cache(maxsize=4)
def _read(source: DataSource) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Read once per process."""
    columns = Columns(
        source.inputs,
        source.outputs,
        source.ts,
        source.time,
        fill=source.fill,
        prepare=source.prepare,
        time_format=source.time_format,
    )
    data = read_fit_data(
        [source.train],
        columns,
        validation=None,
        test=None if source.test is None else [source.test],
        test_inputs=source.test_inputs,
        test_outputs=source.test_outputs,
    )
    return data.train, data.tests
