"""A training run on disk: everything needed to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.records import Record
from tausid.engine.choice import Engine
from tausid.errors import ConfigError
from tausid.model.arrays import fill_arrays, named_arrays
from tausid.model.free_run import why_not_compiled
from tausid.model.physics import describe_physics
from tausid.storage import read_arrays, write_arrays
from tausid.training.parts import Adam, LevenbergMarquardt
from tausid.training.problem import Problem
from tausid.training.result import FoldCurve, HistoryRow
from tausid.training.run_state import RunState, Status

FILE_NAME = "checkpoint.safetensors"
TRIALS_NAME = "checkpoint-trials.safetensors"
ALL_FILES = "checkpoint*.safetensors"
SCALARS = ("step", "best_score", "best_step", "recoveries", "seconds", "first_score", "first_loss")


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
    weights, inner = problem.first_weights, None
    if isinstance(problem.recipe.trainer, Adam):
        from tausid.training.adam import init

        inner = init(problem).inner
    fresh = RunState(inner, weights, 0, weights, np.inf, 0, (), 0.0, Status.RUNNING)
    return dataclasses.replace(
        fresh,
        **fill_arrays(_arrays(problem, fresh), arrays),
        history=tuple(HistoryRow(*_tuples(row)) for row in content["history"]),
        status=Status(content["status"]),
        **{name: content[name] for name in SCALARS},
    )


@dataclass(frozen=True, eq=False)
class StoredTrial:
    """A trial as its file has it.

    Args:
        curve: what it said.
        arrays: the arrays of its model by name; none where it has no model.
    """

    curve: FoldCurve
    arrays: Mapping[str, np.ndarray]


def save_trials(folder: Path, problem: Problem, trials: Mapping[str, StoredTrial]) -> None:
    """Write the trials of a fit so far."""
    curves = {key: list(dataclasses.astuple(trial.curve)) for key, trial in trials.items()}
    arrays = {
        f"{number}/{name}": array
        for number, trial in enumerate(trials.values())
        for name, array in trial.arrays.items()
    }
    content = {"identity": identity(problem), "trials": curves}
    write_arrays(folder / TRIALS_NAME, arrays, kind="checkpoint", content=content)


def load_trials(folder: Path, problem: Problem) -> dict[str, StoredTrial]:
    """Read the trials of a fit so far."""
    content, arrays = _read(folder / TRIALS_NAME, problem)
    if content is None:
        return {}
    by_trial: dict[int, dict[str, np.ndarray]] = {}
    for path, array in arrays.items():
        number, name = path.split("/", 1)
        by_trial.setdefault(int(number), {})[name] = array
    return {
        key: StoredTrial(FoldCurve(*_tuples(curve)), by_trial.get(number, {}))
        for number, (key, curve) in enumerate(content["trials"].items())
    }


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
        "engine": _engine(problem),
        "data": fingerprint((*problem.split.train, *problem.split.validation)),
        **({} if model.physics is None else {"physics": json.loads(json.dumps(describe_physics(model.physics.plant)))}),
    }


def _engine(problem: Problem) -> str:
    """What computes, and so decides the last digits."""
    model = problem.initial_model
    engine = Engine(model.integration.engine)
    if isinstance(problem.recipe.trainer, LevenbergMarquardt) and why_not_compiled(model.state_space, engine) is None:
        return "compiled"
    from tausid.engine.engines import engine_taken

    return engine_taken(model.state_space.field, model.integrator, engine)


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
