"""A training run on disk: everything needed to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.records import Record
from tausid.engine.engines import Engine, engine_taken
from tausid.errors import ConfigError
from tausid.model.arrays import fill_arrays, named_arrays
from tausid.model.config import Config
from tausid.model.physics import describe_physics
from tausid.storage import read_arrays, write_arrays
from tausid.training.loop import Problem, RunState
from tausid.training.result import FoldCurve, HistoryRow

FILE_NAME = "checkpoint.safetensors"
FOLD_NAME = "checkpoint-fold-{}.safetensors"
CURVES_NAME = "checkpoint-folds.safetensors"


def save_checkpoint(folder: Path, problem: Problem, run: RunState, name: str = FILE_NAME) -> None:
    """Write the run's state."""
    scalars = {name: getattr(run, name) for name in SCALARS}
    content = {
        "identity": identity(problem),
        "history": [dataclasses.astuple(row) for row in run.history],
        **scalars,
    }
    write_arrays(folder / name, named_arrays(_arrays(run)), kind="checkpoint", content=content)


def load_checkpoint(folder: Path, problem: Problem, fresh: RunState, name: str = FILE_NAME) -> RunState | None:
    """Read the run's state, if there is one."""
    path = folder / name
    if not path.exists():
        return None
    arrays, content = read_arrays(path, kind="checkpoint")
    # A run of an older version lacks settings that came later; it was as their defaults are.
    _check_identity(path, {**Config().as_dict(), **content["identity"]}, identity(problem))
    tree = fill_arrays(_arrays(fresh), arrays)
    return dataclasses.replace(
        fresh,
        optimiser=tree["optimiser"],
        best_weights=tree["best_weights"],
        history=tuple(HistoryRow(*_tuples(row)) for row in content["history"]),
        **{name: content.get(name, getattr(fresh, name)) for name in SCALARS},
    )


def save_fold_curves(folder: Path, problem: Problem, curves: Mapping[str, FoldCurve]) -> None:
    """Write what the trials of a second-order training said so far."""
    content = {
        "identity": identity(problem),
        "trials": {label: dataclasses.astuple(curve) for label, curve in curves.items()},
    }
    write_arrays(folder / CURVES_NAME, {}, kind="checkpoint", content=content)


def load_fold_curves(folder: Path, problem: Problem) -> dict[str, FoldCurve]:
    """Read what the trials of a second-order training said so far."""
    path = folder / CURVES_NAME
    if not path.exists():
        return {}
    content = read_arrays(path, kind="checkpoint")[1]
    _check_identity(path, {**Config().as_dict(), **content["identity"]}, identity(problem))
    # Curves of an older version do not begin with the start, and have another name: these trials are repeated.
    return {label: FoldCurve(*_tuples(curve)) for label, curve in content.get("trials", {}).items()}


SCALARS = ("best_score", "best_step", "recoveries", "seconds", "status", "finished", "from_fold")


def identity(problem: Problem) -> dict[str, Any]:
    """What must be the same for a run to be resumed: settings, tau's start, and the data."""
    model = problem.initial_model
    tau = model.state_space.tau
    return {
        **problem.config.as_dict(),
        "tau": tau.start.tolist(),
        "tau_trainable": tau.trainable,
        "channels": [*model.input_names, *model.output_names, *model.input_units, *model.output_units],
        "engine": engine_taken(model.state_space.field, model.integrator, Engine(problem.config.engine)),
        "data": fingerprint((*problem.split.train, *problem.split.validation)),
        **({} if model.physics is None else {"physics": json.loads(json.dumps(describe_physics(model.physics.plant)))}),
    }


def fingerprint(records: Iterable[Record]) -> str:
    """A checksum over the samples of records."""
    digest = hashlib.sha256()
    for record in records:
        for array in (record.t, record.u, record.y):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _arrays(run: RunState) -> dict[str, Any]:
    return {"optimiser": run.optimiser, "best_weights": run.best_weights}


def _check_identity(path: Path, saved: dict[str, Any], asked: dict[str, Any]) -> None:
    for name in asked:
        if saved.get(name) != asked[name]:
            raise ConfigError(
                f"a resumed run must have the settings and data it began with; `{name}` was {saved.get(name)!r} and is "
                f"now {asked[name]!r} ({path}). Resume with the same values, or start a new run elsewhere."
            )


def _tuples(row: list[Any]) -> list[Any]:
    return [tuple(value) if isinstance(value, list) else value for value in row]
