"""Records and free runs of a run as named arrays and plain JSON, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tausid.data.records import Record
from tausid.model.course import Simulation
from tausid.results.runs._run import Experiment

# The fields of a record that are no arrays: names and units.
TEXTS = tuple(entry.name for entry in dataclasses.fields(Record) if entry.name not in ("u", "y", "t"))


def to_arrays(experiments: Sequence[Experiment]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and what else there is to say."""
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
                **{name: getattr(record, name) for name in TEXTS},
            }
        )
    return arrays, {"experiments": about}


def from_arrays(arrays: Mapping[str, np.ndarray], content: Mapping[str, Any]) -> tuple[Experiment, ...]:
    """The experiments that `to_arrays` was given."""
    return tuple(_experiment(number, about, arrays) for number, about in enumerate(content["experiments"]))


def _experiment(number: int, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Experiment:
    texts: dict[str, Any] = {name: text if isinstance(text := about[name], str) else tuple(text) for name in TEXTS}
    u, y, t, simulated, x = (arrays[f"{number}.{name}"] for name in ("u", "y", "t", "simulated", "x"))
    record = Record(u, y, t, **texts)
    run = Simulation(
        record.t,
        simulated,
        x.astype(float),
        about["n_skipped"],
        about["status"],
        record.output_names,
        about["initial_state"],
        arrays.get(f"{number}.low"),
        arrays.get(f"{number}.high"),
    )
    return Experiment(about["role"], record, run, about["skip"])
