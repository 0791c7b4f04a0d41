"""Folders and files that commands write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tausid.data.inspection import like_time
from tausid.data.readers import read_channels
from tausid.data.records import Dataset, Record
from tausid.data.sources import Columns, files_of, read_part
from tausid.errors import ConfigError, DataError
from tausid.locks import only_writer
from tausid.model.course import Simulation
from tausid.model.ensembles import AnyModel
from tausid.model.model import InitialValue
from tausid.storage import check_writable, write_table

if TYPE_CHECKING:
    from tausid.results.runs import RunFolder


@contextlib.contextmanager
def run_folder(out: Path | None, name: str, seed: int, *, resume: bool, overwrite: bool) -> Iterator[RunFolder]:
    """The folder of a run, for this process alone, with nothing in it that could be lost unasked.

    A new folder goes again where nothing was written to it.
    """
    from tausid.results.runs import RunFolder  # late: it knows all of training

    if resume and overwrite:
        raise ConfigError("`--resume` and `--overwrite` cannot be combined; got both. Choose one.")
    if out is None:
        if resume:
            raise ConfigError("`--resume` needs the folder of the run; no --out was given. Add --out FOLDER.")
        files, is_new = RunFolder(_make_next(Path("runs") / f"{name}-seed{seed}")), True
    else:
        files, is_new = RunFolder(out), not out.exists()
    with only_writer(check_writable(files.path)):
        if files.is_used and not (resume or overwrite):
            raise ConfigError(
                f"`--out` must be a folder without a run; {out} holds one. Resume it with --resume, replace it with "
                "--overwrite, or choose another folder."
            )
        try:
            yield files
        finally:
            if is_new:
                _remove_if_empty(files)


def _remove_if_empty(files: RunFolder) -> None:
    """Remove a folder with nothing but its lock in it."""
    if list(files.path.iterdir()) == [files.lock_file]:
        with contextlib.suppress(OSError):  # as on Windows, where a lock that is held cannot be removed
            files.lock_file.unlink()
            files.path.rmdir()


def read_for(
    model: AnyModel, data: Sequence[str], columns: Columns, part: str | None, *, inputs_alone: bool = False
) -> tuple[Record, ...]:
    """Records for a model, which knows its channels: what was not given is read by its names and its sampling time."""
    if data[0].startswith("@"):
        return read_part(data, columns, part)
    given = columns
    channels = read_channels(files_of(data[:1])[0])
    names = {channel.name for channel in channels.channels}
    alone = inputs_alone and not columns.outputs and not names & set(model.output_names)
    if not channels.with_role("output"):  # a file that says its channels itself needs no names
        outputs = columns.outputs or (() if alone else model.output_names)
        columns = replace(columns, inputs=columns.inputs or model.input_names, outputs=outputs, inputs_alone=alone)
    if columns.ts is None and columns.time is None and channels.ts is None and not channels.with_role("time"):
        time = next((channel.name for channel in channels.channels if like_time(channel, named=True)), None)
        if time is None and (columns.prepare or model.provenance.get("preparation")):
            raise ConfigError(
                f"the sampling time of {channels.name!r} must be given, as the model's is that of prepared data; got "
                "neither --ts nor --time. Give one of them."
            )
        columns = replace(columns, time=time, ts=None if time else model.ts)
        said = f"time stamps from column {time!r}" if time else f"sampling time {model.ts:g} s, as in training"
        print(f"note: {channels.name}: {said}; for another one give --time or --ts", file=sys.stderr)
    try:
        records = read_part(data, columns, part)
    except DataError as error:
        if given.inputs or given.outputs or names >= {*model.input_names, *model.output_names}:
            raise
        raise DataError(f"{error} Or name the columns that are the model's: --input NAME --output NAME.") from None
    if not given.inputs and not given.outputs:
        return records
    return tuple(_mapped(record, model) for record in records)


def _mapped(record: Record, model: AnyModel) -> Record:
    """Channels that were named on purpose are the model's, in their order."""
    inputs = model.input_names if record.nu == len(model.input_names) else None
    outputs = model.output_names if record.ny == len(model.output_names) else None
    return record.renamed(inputs=inputs, outputs=outputs)


def parse_x0(text: str | None, after: str | None, model: AnyModel, columns: Columns) -> InitialValue:
    """Where a simulation begins, from the command line: a way, numbers, outputs by name, or a file that it follows."""
    if after is not None:
        if text is not None:
            raise ConfigError("`--x0` and `--after` cannot be combined; got both. Choose one.")
        return read_for(model, [after], columns, None)[-1]
    if text is None or (text[0].isalpha() and "=" not in text):
        return text
    try:
        if "=" in text:
            return {name.strip(): float(value) for name, _, value in (p.rpartition("=") for p in text.split(","))}
        return [float(value) for value in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"`--x0` must be encoder, refine, rest, a state such as 0.1,-0.2, or outputs at rest such as level=2; got "
            f"{text!r}. Correct it."
        ) from None


def write_simulation(path: Path, record: Record, simulation: Simulation) -> Path:
    """Write a simulation as CSV: time, inputs and measured outputs (on the record's own samples), simulated outputs,
    and of an ensemble the band.
    """
    outputs = simulation.output_names
    simulated = [f"{name}_simulated" for name in outputs]
    columns: list[np.ndarray] = [simulation.t[:, None]]
    header = ["t"]
    if len(simulation.t) == len(record) and np.array_equal(simulation.t, record.t):
        columns += [record.u, record.y]
        header += [*record.input_names, *record.output_names]
    columns.append(simulation.y)
    if simulation.low is not None and simulation.high is not None:
        columns += [simulation.low, simulation.high]
        simulated += [f"{name}_{end}" for end in ("low", "high") for name in outputs]
    return write_table(path, [*header, *simulated], np.concatenate(columns, axis=1).tolist())


def write_dataset(folder: Path, data: Dataset) -> list[Path]:
    """Write the records of a dataset as CSV files named by their roles, units in the header."""
    check_writable(folder)
    records = {"train": data.train, "test": data.test, **{record.name: record for record in data.more_tests}}
    return [write_record(folder / f"{name}.csv", record) for name, record in records.items()]


def write_record(path: Path, record: Record) -> Path:
    """Write a record as CSV: time, inputs, outputs."""
    names = ("time", *record.input_names, *record.output_names)
    units = ("s", *record.input_units, *record.output_units)
    header = [f"{name} ({unit})" if unit else name for name, unit in zip(names, units, strict=True)]
    return write_table(path, header, np.column_stack([record.t, record.u, record.y]).tolist())


def _make_next(folder: Path) -> Path:
    """Make this folder, or the first of `folder-2`, `folder-3`, ... that nobody else has made."""
    check_writable(folder.parent)
    made, number = folder, 1
    while True:
        try:
            made.mkdir()
            return made
        except FileExistsError:
            number += 1
            made = folder.with_name(f"{folder.name}-{number}")
