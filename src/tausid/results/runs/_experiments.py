"""The records and free runs of a run as one file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.records import Record
from tausid.errors import StorageError, TausidError
from tausid.model.course import Simulation
from tausid.results.runs._run import Experiment
from tausid.storage import read_arrays, write_arrays

RECORDS = "records.safetensors"


def write_experiments(folder: str | os.PathLike[str], experiments: Sequence[Experiment]) -> Path:
    """Store records and free runs in a run's folder.

    Args:
        folder: the folder.
        experiments: the records with their free runs.

    Returns:
        The path of the file.

    Raises:
        StorageError: the folder cannot be written.
    """
    arrays: dict[str, np.ndarray] = {}
    about = []
    for number, experiment in enumerate(experiments):
        record, run = experiment.record, experiment.simulation
        parts = {"t": record.t, "u": record.u, "y": record.y, "simulated": run.y, "x": run.x.astype(np.float32)}
        if run.low is not None and run.high is not None:
            parts |= {"low": run.low, "high": run.high}
        arrays |= {f"{number}.{name}": array for name, array in parts.items()}
        about.append(
            {
                "role": experiment.role,
                "skip": experiment.skip,
                "n_skipped": run.n_skipped,
                "status": run.status,
                "initial_state": run.initial_state,
                **{name: _plain(getattr(record, name)) for name in _texts()},
            }
        )
    return write_arrays(Path(folder) / RECORDS, arrays, kind="records", content={"experiments": about})


def read_experiments(folder: Path) -> tuple[Experiment, ...]:
    """What `write_experiments` stored in a run's folder."""
    arrays, content = read_arrays(folder / RECORDS, kind="records")
    try:
        return tuple(_experiment(number, about, arrays) for number, about in enumerate(content["experiments"]))
    except (KeyError, TypeError, TausidError) as error:
        raise StorageError(f"{folder / RECORDS} must hold records; it does not ({error}). Fit again.") from None


def _experiment(number: int, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Experiment:
    texts: dict[str, Any] = {
        name: about[name] if isinstance(about[name], str) else tuple(about[name]) for name in _texts() if name in about
    }
    u, y, t = (arrays[f"{number}.{name}"] for name in ("u", "y", "t"))
    record = Record(u, y, t, **texts)
    x = arrays[f"{number}.x"].astype(float)
    names = record.output_names
    run = Simulation(
        record.t,
        arrays[f"{number}.simulated"],
        x,
        about["n_skipped"],
        about["status"],
        names,
        about.get("initial_state", "encoder"),
        arrays.get(f"{number}.low"),
        arrays.get(f"{number}.high"),
    )
    return Experiment(about["role"], record, run, about["skip"])


def _texts() -> list[str]:
    """The fields of a record that are no arrays: names and units."""
    return [entry.name for entry in dataclasses.fields(Record) if entry.name not in ("u", "y", "t")]


def _plain(value: str | tuple[str, ...]) -> str | list[str]:
    return value if isinstance(value, str) else list(value)
