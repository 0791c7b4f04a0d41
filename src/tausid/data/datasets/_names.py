"""Datasets by name: benchmarks and DaISy, whose files are found, and one fixed record of each simulated plant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tausid.data.datasets._benchmarks import BENCHMARKS, Benchmark, find_files
from tausid.data.datasets._daisy import DAISY, DaisyRecord
from tausid.data.plants import PLANTS, simulate, simulate_tanks
from tausid.data.records import Dataset
from tausid.errors import ConfigError, unknown_name

# A name stands for one record, whoever loads it: runs of a study differ in the seed of the fit, not in the data.
RECORD_SEED = 0


@dataclass(frozen=True)
class Simulated:
    """A simulated dataset."""

    summary: str  # one sentence on it
    make: Callable[[], Dataset]  # makes its records


def names() -> tuple[str, ...]:
    """The datasets that `load` knows.

    Returns:
        Their names, the measured ones first.

    Example:
        >>> names()[:4]
        ('cascaded_tanks', 'emps', 'silverbox', 'daisy_heating')
    """
    return tuple(_DATASETS)


def describe(name: str) -> str:
    """One sentence on a dataset: what was measured, how often, how it is split.

    Args:
        name: one of `names()`.

    Raises:
        ConfigError: there is no such dataset.

    Example:
        >>> describe("emps")
        'drive of a linear axis with friction: force (N) to position (m), 1 kHz, 24841 samples each'
    """
    return _get(name).summary


def load(name: str, *, folder: str | Path | None = None, timeout: float = 120.0) -> Dataset:
    """Load a benchmark with its official split into training and test records, or a simulated dataset.

    The files of a benchmark come from `folder`, by default the one that the environment variable `TAUSID_DATA` names,
    with one subfolder per benchmark; else they are downloaded from their official address, once, and kept in the user's
    cache folder or the one that `TAUSID_CACHE` names. A file whose sha256 sum is not that of the published record is
    refused. Records of DaISy are found in that folder, in the subfolder `daisy`, and nowhere else.

    Simulated datasets have no files: each is made anew, with seed 0. `simulate` and `simulate_tanks` make others.

    Args:
        name: one of `names()`.
        folder: where to look first for files, instead of `TAUSID_DATA`.
        timeout: most seconds for a download.

    Returns:
        The dataset; `score_skip` is the number of leading samples that the official score leaves out.

    Raises:
        ConfigError: there is no such dataset.
        DataError: the files are not available, or are not the published ones.

    Example:
        >>> load("duffing").train
        Record('train': 2000 samples, Ts = 0.00166667 s, force -> position)
    """
    dataset = _get(name)
    paths = fetch(name, folder=folder, timeout=timeout)
    return dataset.make() if isinstance(dataset, Simulated) else dataset.read(paths)


def fetch(name: str, *, folder: str | Path | None = None, timeout: float = 120.0) -> tuple[Path, ...]:
    """Find the files of a benchmark, download them if need be, and check their sums.

    Args:
        name: one of `names()`.
        folder: where to look first, instead of `TAUSID_DATA`.
        timeout: most seconds for a download.

    Returns:
        The paths of the files; a simulated dataset has none.

    Raises:
        ConfigError: there is no such dataset.
        DataError: the files are not available, or are not the published ones.
    """
    dataset = _get(name)
    if isinstance(dataset, Simulated):
        return ()
    if isinstance(dataset, DaisyRecord):
        return dataset.find(folder)
    return find_files(name, folder=folder, timeout=timeout)


def _get(name: str) -> Benchmark | DaisyRecord | Simulated:
    if name not in _DATASETS:
        raise ConfigError(unknown_name("dataset", name, _DATASETS))
    return _DATASETS[name]


def _tanks_with_steps() -> Dataset:
    steps = simulate_tanks(seed=RECORD_SEED, excitation="random_steps").test
    return replace(simulate_tanks(seed=RECORD_SEED), more_tests=(replace(steps, name="steps"),))


_DATASETS: dict[str, Benchmark | DaisyRecord | Simulated] = {
    **BENCHMARKS,
    **DAISY,
    "simulated_tanks": Simulated(
        "simulated tanks with the benchmark's physics: pump voltage to water level (V), Ts = 4 s, 1024 samples each",
        _tanks_with_steps,
    ),
    **{name: Simulated(plant.summary, partial(simulate, name, seed=RECORD_SEED)) for name, plant in PLANTS.items()},
}
