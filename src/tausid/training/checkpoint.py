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
from tausid.engine.choice import Engine
from tausid.engine.engines import engine_taken
from tausid.errors import ConfigError
from tausid.model.arrays import fill_arrays, named_arrays
from tausid.model.physics import describe_physics
from tausid.storage import read_arrays, write_arrays
from tausid.training.adam import Moments
from tausid.training.parts import Adam
from tausid.training.problem import Problem
from tausid.training.result import FoldCurve, HistoryRow, TrialKey
from tausid.training.run_state import RunState, Status

FILE_NAME = "checkpoint.safetensors"
TRIALS_NAME = "checkpoint-trials.safetensors"
ALL_FILES = "checkpoint*.safetensors"
SCALARS = ("step", "best_score", "best_step", "recoveries", "seconds", "from_fold")


def save_checkpoint(folder: Path, problem: Problem, run: RunState) -> None:
    """Write where a training is."""
    content = {
        "identity": identity(problem),
        "history": [dataclasses.astuple(row) for row in run.history],
        "status": str(run.status),
        **{name: getattr(run, name) for name in SCALARS},
    }
    write_arrays(folder / FILE_NAME, named_arrays(_arrays(problem, run)), kind="checkpoint", content=content)


def load_checkpoint(folder: Path, problem: Problem) -> RunState | None:
    """Read where a training is; None where no checkpoint was written yet."""
    content, arrays = _read(folder / FILE_NAME, problem)
    if content is None:
        return None
    weights = problem.first_weights
    inner = Moments.start(weights) if isinstance(problem.recipe.trainer, Adam) else None
    fresh = RunState(inner, weights, 0, weights, np.inf, 0, (), 0.0, Status.RUNNING)
    return dataclasses.replace(
        fresh,
        **fill_arrays(_arrays(problem, fresh), arrays),
        history=tuple(HistoryRow(*_tuples(row)) for row in content["history"]),
        status=Status(content["status"]),
        **{name: content[name] for name in SCALARS},
    )


def save_trials(folder: Path, problem: Problem, curves: Mapping[TrialKey, FoldCurve]) -> None:
    """Write what the trials of a fit said so far."""
    trials = [[list(key), list(dataclasses.astuple(curve))] for key, curve in curves.items()]
    content = {"identity": identity(problem), "trials": trials}
    write_arrays(folder / TRIALS_NAME, {}, kind="checkpoint", content=content)


def load_trials(folder: Path, problem: Problem) -> dict[TrialKey, FoldCurve]:
    """Read what the trials of a fit said so far."""
    content, _ = _read(folder / TRIALS_NAME, problem)
    if content is None:
        return {}
    return {tuple(key): FoldCurve(*_tuples(curve)) for key, curve in content["trials"]}


def identity(problem: Problem) -> dict[str, Any]:
    """What must be the same for a run to be resumed: recipe, seed, tau's start, and the data."""
    model = problem.initial_model
    tau = model.state_space.tau
    return {
        **problem.recipe.as_dict(),
        "seed": problem.seed,
        "tau": tau.start.tolist(),
        "tau_trainable": tau.trainable,
        "channels": [*model.input_names, *model.output_names, *model.input_units, *model.output_units],
        "engine": engine_taken(model.state_space.field, model.integrator, Engine(model.integration.engine)),
        "data": fingerprint((*problem.split.train, *problem.split.validation)),
        **({} if model.physics is None else {"physics": json.loads(json.dumps(describe_physics(model.physics.plant)))}),
    }


def fingerprint(records: Iterable[Record]) -> str:
    """A checksum over the samples of records: the first 16 hexadecimal digits of their sha256."""
    digest = hashlib.sha256()
    for record in records:
        for array in (record.t, record.u, record.y):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _arrays(problem: Problem, run: RunState) -> dict[str, Any]:
    """The arrays to keep; Levenberg-Marquardt begins anew, so that what it carries on is not among them."""
    inner = run.inner if isinstance(problem.recipe.trainer, Adam) else None
    return {"weights": run.weights, "best_weights": run.best_weights, "inner": inner}


def _read(path: Path, problem: Problem) -> tuple[dict[str, Any] | None, Mapping[str, np.ndarray]]:
    if not path.exists():
        return None, {}
    arrays, content = read_arrays(path, kind="checkpoint")
    for name, now in identity(problem).items():
        _check_same(path, name, content["identity"].get(name), now)
    return content, arrays


def _check_same(path: Path, name: str, saved: Any, now: Any) -> None:
    """Name the setting that differs, within a part of the recipe, too."""
    if isinstance(saved, dict) and isinstance(now, dict):
        for key in now:
            _check_same(path, f"{name}.{key}", saved.get(key), now[key])
    elif saved != now:
        raise ConfigError(
            f"a resumed run must have the settings and data it began with; `{name}` was {saved!r} and is now {now!r} "
            f"({path}). Resume with the same values, or start a new run elsewhere."
        )


def _tuples(row: list[Any]) -> list[Any]:
    return [tuple(value) if isinstance(value, list) else value for value in row]
