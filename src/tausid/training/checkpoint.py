"""A training run on disk: everything needed to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from tausid.data.records import Record
from tausid.engine.choice import Engine
from tausid.errors import ConfigError
from tausid.model.arrays import fill_arrays, named_arrays
from tausid.model.free_run import why_not_compiled
from tausid.model.physics import describe_physics
from tausid.schema import Count, SchemaError, Strict, as_schema
from tausid.storage import described, read_arrays, write_arrays
from tausid.training.parts import Adam, LevenbergMarquardt
from tausid.training.problem import Problem
from tausid.training.result import FoldCurve, HistoryRow
from tausid.training.run_state import RunState, Status

Content = TypeVar("Content", "CheckpointContent", "TrialsContent")
FILE_NAME = "checkpoint.safetensors"
TRIALS_NAME = "checkpoint-trials.safetensors"
ALL_FILES = "checkpoint*.safetensors"
SCALARS = ("step", "best_score", "best_step", "recoveries", "seconds", "first_score", "first_loss")


class CheckpointContent(Strict, frozen=True):
    """What the file of a training says beside its arrays; a row of the history lists the values of its fields."""

    identity: dict[str, Any]
    history: tuple[list[Any], ...]
    status: Status
    step: Count
    best_score: float
    best_step: Count
    recoveries: Count
    seconds: float
    first_score: float
    first_loss: float


class CurveContent(Strict, frozen=True, array_like=True):
    """A `FoldCurve` as a list of the values of its fields."""

    steps: Annotated[tuple[Count, ...], Meta(min_length=1)]
    errors: tuple[float, ...]
    scored: Annotated[int, Meta(ge=1, le=2**53)]
    seconds: float
    losses: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.errors) == len(self.losses):
            raise ValueError("a curve must have an error and a loss for each of its steps")
        if self.steps[0] != 0 or list(self.steps) != sorted(self.steps):
            raise ValueError("the steps of a curve must count from 0 up")


class TrialsContent(Strict, frozen=True):
    """What the file of a fit's trials says beside their arrays."""

    identity: dict[str, Any]
    trials: dict[str, CurveContent]


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
    path = folder / FILE_NAME
    content, arrays = _read(path, problem, CheckpointContent)
    if content is None:
        return None
    weights, inner = problem.first_weights, None
    if isinstance(problem.recipe.trainer, Adam):
        from tausid.training.adam import init

        inner = init(problem).inner
    fresh = RunState(inner, weights, 0, weights, np.inf, 0, (), 0.0, Status.RUNNING)
    with described(path, "checkpoint"):
        return dataclasses.replace(
            fresh,
            **fill_arrays(_arrays(problem, fresh), arrays),
            history=tuple(_row(row) for row in content.history),
            status=content.status,
            **{name: getattr(content, name) for name in SCALARS},
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
    path = folder / TRIALS_NAME
    content, arrays = _read(path, problem, TrialsContent)
    if content is None:
        return {}
    by_trial: dict[str, dict[str, np.ndarray]] = {}
    for array_name, array in arrays.items():
        number, _, name = array_name.partition("/")
        by_trial.setdefault(number, {})[name] = array
    with described(path, "checkpoint"):
        return {
            key: StoredTrial(FoldCurve(*msgspec.structs.astuple(curve)), by_trial.get(str(number), {}))
            for number, (key, curve) in enumerate(content.trials.items())
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


def _read(path: Path, problem: Problem, schema: type[Content]) -> tuple[Content | None, Mapping[str, np.ndarray]]:
    if not path.exists():
        return None, {}
    arrays, found = read_arrays(path, kind="checkpoint")
    with described(path, "checkpoint"):
        content = as_schema(found, schema)
    for name, now in identity(problem).items():
        _check_same(path, name, content.identity.get(name), now)
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


def _row(values: list[Any]) -> HistoryRow:
    """A row from a list of its values, in order."""
    names = [field.name for field in dataclasses.fields(HistoryRow)]
    if len(values) != len(names):
        raise SchemaError(f"a row must have {len(names)} values; got {len(values)}")
    return as_schema(dict(zip(names, values, strict=True)), HistoryRow)
