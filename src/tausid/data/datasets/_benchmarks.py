"""Benchmark records with their official splits, from a local folder or downloaded from their official addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tausid.data.datasets._download import NotAvailableError, cache_folder, download
from tausid.data.datasets._folder import FOLDER_VARIABLE, find_in_folder
from tausid.data.readers import read, read_csv
from tausid.data.records import Dataset, Record
from tausid.errors import DataError

# The parts of the Silverbox record, [start, stop) in samples; the first 32000 of the arrow stay within the
# amplitudes of the multisine.
SILVERBOX_MULTISINE = (40650, 127400)
SILVERBOX_ARROW = (100, 40575)
SILVERBOX_NO_EXTRAPOLATION = 32000
SILVERBOX_TRAIN_SHARE = 0.75
SILVERBOX_RATE_HZ = 610.35


@dataclass(frozen=True)
class Benchmark:
    """A benchmark."""

    summary: str  # one sentence on it
    files: dict[str, str]  # sha256 sums by the names of its files
    read: Callable[[tuple[Path, ...]], Dataset]  # makes the records from the paths of the files
    addresses: tuple[str, ...]  # official addresses of a zip archive with the files, the best one first


def find_files(name: str, *, folder: str | Path | None, timeout: float) -> tuple[Path, ...]:
    """Find the files of a benchmark, download them if need be, and check their sums."""
    benchmark = BENCHMARKS[name]
    try:
        paths = find_in_folder(name, benchmark.files, folder)
    except NotAvailableError as local:
        try:
            return _find_in_cache(name, benchmark) or download(
                name, benchmark.files, benchmark.addresses, timeout=timeout
            )
        except NotAvailableError as remote:
            raise DataError(_nowhere(name, benchmark, f"{local}; {remote}")) from None
    for path in paths:
        _check_sum(path, benchmark.files[path.name])
    return paths


def _find_in_cache(name: str, benchmark: Benchmark) -> tuple[Path, ...]:
    """The files of an earlier download; none if one is missing or damaged, as then all are downloaded again."""
    paths = tuple(cache_folder() / name / file for file in benchmark.files)
    try:
        whole = all(_sum(path) == benchmark.files[path.name] for path in paths)
    except OSError:
        whole = False
    return paths if whole else ()


def _nowhere(name: str, benchmark: Benchmark, reasons: str) -> str:
    """The reasons in the first line, what to do in the second."""
    files = " and ".join(f"{name}/{file}" for file in benchmark.files)
    return (
        f"dataset {name!r} is not available: {reasons}.\n"
        f"Set {FOLDER_VARIABLE} to a folder that holds {files}, or connect to the internet and try again, "
        "or use tausid.datasets.simulate_tanks(seed=0), which needs no files."
    )


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _google_drive(file: str) -> str:
    """The address of a file itself; the usual one is that of a page about it."""
    return f"https://drive.usercontent.google.com/download?id={file}&export=download&confirm=t"


def _check_sum(path: Path, expected: str) -> None:
    try:
        received = _sum(path)
    except OSError as error:
        raise DataError(f"file '{path}' must be readable; got: {error.strerror}. Check the path.") from None
    if received != expected:
        raise DataError(
            f"file '{path}' must be the published record, with sha256 {expected}; it has {received}. "
            "It was changed or cut short: delete it and get it again."
        )


def _read_cascaded_tanks(paths: tuple[Path, ...]) -> Dataset:
    train = _read_tanks_part(paths[0], "Est", "train")
    test = _read_tanks_part(paths[0], "Val", "test")
    return Dataset(train=train, test=test, name="cascaded_tanks", score_skip=50)


def _read_tanks_part(path: Path, ending: str, role: str) -> Record:
    u, y = f"u{ending}", f"y{ending}"
    record = read_csv(path, inputs=u, outputs=y, ts=4.0, units={u: "V", y: "V"}, name=role)
    return replace(record, input_names=("u",), output_names=("y",))


def _read_emps(paths: tuple[Path, ...]) -> Dataset:
    train, test = _read_emps_part(paths[0], "train"), _read_emps_part(paths[1], "test")
    return Dataset(train=train, test=test, name="emps", score_skip=20)


def _read_emps_part(path: Path, role: str) -> Record:
    # The file's own time stamps lie within 0.1 us of this clock; their median step differs by file.
    return read(path, inputs="vir", outputs="qm", ts=1e-3, units={"vir": "N", "qm": "m"}, name=role)


def _read_silverbox(paths: tuple[Path, ...]) -> Dataset:
    units = {"V1": "V", "V2": "V"}
    record = read_csv(paths[0], inputs="V1", outputs="V2", ts=1.0 / SILVERBOX_RATE_HZ, units=units)
    start, stop = SILVERBOX_MULTISINE
    split = start + int(SILVERBOX_TRAIN_SHARE * (stop - start))
    first, last = SILVERBOX_ARROW
    arrows = (
        record.part(first, last, name="arrow_full"),
        record.part(first, first + SILVERBOX_NO_EXTRAPOLATION, name="arrow_no_extrapolation"),
    )
    return Dataset(
        train=record.part(start, split, name="train"),
        test=record.part(split, stop, name="multisine"),
        more_tests=arrows,
        name="silverbox",
        score_skip=50,
    )


BENCHMARKS = {
    "cascaded_tanks": Benchmark(
        "two tanks with overflow: pump voltage to water level (V), Ts = 4 s, 1024 samples each",
        {"dataBenchmark.csv": "ef2388ed822f3aef4aa80d6b0f2b466dd80b361786b3eafc7a2957c31ea323a7"},
        _read_cascaded_tanks,
        (
            "https://data.4tu.nl/file/d4810b78-6cdd-48fe-8950-9bd601e5f47f/3b697e42-01a4-4979-a370-813a456c36f5",
            _google_drive("1HnQf_gu0g_UlggoBqy2s34l9YJiFdN01"),
        ),
    ),
    "emps": Benchmark(
        "drive of a linear axis with friction: force (N) to position (m), 1 kHz, 24841 samples each",
        {
            "DATA_EMPS.mat": "6cf6814ae14618795da0101aae2bb97ff0c6351b0501b5492751b02b07facf7e",
            "DATA_EMPS_PULSES.mat": "0eab75bb1f6b16228ee78791343a88bf9bfd9a51036ac9807d7b5fc11c0e1704",
        },
        _read_emps,
        (_google_drive("1zwoXYa9-3f8NQ0ohzmjpF7UxbNgRTHkS"),),
    ),
    "silverbox": Benchmark(
        "electronic Duffing oscillator: voltage to voltage (V), 610.35 Hz, 65062 samples and three tests",
        {"SNLS80mV.csv": "ae62d5a91230c10f76e6dd02c8a4fac3c9d4d8a95fbf50e87cb0c4885003e0f1"},
        _read_silverbox,
        (_google_drive("17iS-6oBUUgrmiAcrZoG9S5sOaljZnDSy"),),
    ),
}
