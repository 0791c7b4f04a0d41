"""Records and free runs of a run as named arrays and plain JSON, and back."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from tausid.data.records import Record
from tausid.errors import DataError
from tausid.model.course import Simulation
from tausid.results.runs._run import Experiment
from tausid.schema import Count, SchemaError, Strict, Text, as_schema

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


class ExperimentContent(Strict, frozen=True):
    """What the file of a run says of one record and its free run, beside their arrays."""

    role: Literal["train", "test"]
    skip: Count | None
    n_skipped: Count
    status: Literal["ok", "diverged"]
    initial_state: Text
    name: str
    input_names: tuple[Text, ...]
    output_names: tuple[Text, ...]
    input_units: tuple[Text, ...]
    output_units: tuple[Text, ...]
    history: tuple[str, ...]


class RecordsContent(Strict, frozen=True):
    """What the file of a run's records says."""

    experiments: Annotated[tuple[ExperimentContent, ...], Meta(min_length=1)]


def from_arrays(arrays: Mapping[str, np.ndarray], content: Any) -> tuple[Experiment, ...]:
    """The experiments that `to_arrays` was given."""
    experiments = as_schema(content, RecordsContent).experiments
    return tuple(_experiment(number, about, arrays) for number, about in enumerate(experiments))


def _experiment(number: int, about: ExperimentContent, arrays: Mapping[str, np.ndarray]) -> Experiment:
    array = functools.partial(_array, arrays, number)
    nu, ny = len(about.input_names), len(about.output_names)
    count = len(array("t", None))
    try:
        record = Record(
            array("u", count, nu),
            array("y", count, ny),
            array("t", count),
            **{name: getattr(about, name) for name in TEXTS},
        )
    except DataError as error:
        raise SchemaError(str(error)) from None
    banded = f"{number}.low" in arrays
    run = Simulation(
        record.t,
        array("simulated", count, ny),
        array("x", count, None).astype(float),
        about.n_skipped,
        about.status,
        record.output_names,
        about.initial_state,
        array("low", count, ny) if banded else None,
        array("high", count, ny) if banded else None,
    )
    return Experiment(about.role, record, run, about.skip)


def _array(arrays: Mapping[str, np.ndarray], number: int, name: str, *shape: int | None) -> np.ndarray:
    """An array of numbers; None is a length that may be any."""
    found = arrays.get(f"{number}.{name}")
    if found is None or found.dtype.kind != "f" or found.ndim != len(shape):
        raise SchemaError(f"array `{number}.{name}` must hold numbers in {len(shape)} dimension(s)")
    if any(wanted not in (None, got) for wanted, got in zip(shape, found.shape, strict=True)):
        raise SchemaError(f"array `{number}.{name}` must have shape {shape}; it has {found.shape}")
    return found
