"""One run of a study, from its choices to its outcome; this is what workers do."""

from __future__ import annotations

import importlib.metadata
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data import datasets
from tausid.data.clocks import median_step
from tausid.data.records import Record
from tausid.locks import hold
from tausid.model.ensembles import AnyModel
from tausid.model.evaluation import Scores, evaluate_records
from tausid.model.official import evaluate_official, evaluate_window
from tausid.results.runs import Run, RunFolder
from tausid.results.study_results import StudyStatus
from tausid.storage import check_writable
from tausid.study.spec import recipe_of, settings_of
from tausid.study.study_data import DataSource, RecordSource, load_source
from tausid.training import FitResult, fit
from tausid.training.candidates import describe
from tausid.training.holdout import split_records
from tausid.training.resolve import resolve_holdout
from tausid.training.run_state import Status

# A run whose coordinator was killed may still be computed by a cluster's worker. So long its successor waits before it
# lets other runs go first; what the worker leaves is a checkpoint to go on from.
SECONDS_TO_WAIT_FOR_FOLDER = 60.0


@dataclass(frozen=True)
class Job:
    """What a worker is told."""

    name: str  # name of the run
    labels: Mapping[str, Any]  # its variant and its values on the axes
    source: DataSource | RecordSource  # where the records come from
    choices: Mapping[str, Any]  # what `fit` is told
    folder: Path  # where checkpoint, model and history go


def execute(job: Job) -> dict[str, Any]:
    """Train, score and save one run; where its folder holds a checkpoint, from there on."""
    check_writable(job.folder)
    with hold(RunFolder(job.folder).lock_file, seconds=SECONDS_TO_WAIT_FOR_FOLDER) as held:
        return _execute(job) if held else {"status": StudyStatus.BUSY}


def _execute(job: Job) -> dict[str, Any]:
    train, tests = load_source(job.source)
    began = _cpu_seconds()
    result = _fit(job, train, tests)
    cpu_seconds = _cpu_seconds() - began
    if result.status == Status.INTERRUPTED:
        return {"status": Status.INTERRUPTED}
    run = Run.from_result(result, train=train, tests=tests)
    files = RunFolder(job.folder)
    files.write(run)
    held_out = split_records(result.recipe, train, validation=None, test=tests or None).validation
    scores = {**run.scores, **({"validation": evaluate_records(result.model, held_out)} if held_out else {})}
    if tests and "window" in job.choices:
        scores["test"] = evaluate_window(result.model, tests, job.choices["window"])
    return {
        **describe_result(result),
        "cpu_seconds": round(cpu_seconds, 3),
        **score_columns(scores),
        **_official_columns(result.model, job.source),
        "model": f"{job.name}/{files.model_file.name}",
    }


def _cpu_seconds() -> float:
    """Of this process and of those that it has started and waited for."""
    return sum(os.times()[:4])


def _official_columns(model: AnyModel, source: DataSource | RecordSource) -> dict[str, float | None]:
    """The official score, where the data are a benchmark that has one."""
    if isinstance(source, RecordSource) or not source.train.startswith("@"):
        return {}
    data = datasets.load(source.train.removeprefix("@"))
    return score_columns({"official": evaluate_official(model, data)}, always=()) if data.score_skip else {}


def _fit(job: Job, train: Sequence[Record], tests: Sequence[Record]) -> FitResult:
    settings = settings_of(job.choices)
    choices = {key: value for key, value in job.choices.items() if key not in settings}
    ratio = choices.pop("ts_over_tau", None)
    choices.pop("window", None)
    if ratio is not None:
        choices["tau"] = (median_step(train) / np.asarray(ratio)).tolist()
    return fit(train, test=tests or None, out=job.folder, resume=True, progress=None, settings=settings, **choices)


def describe_result(result: FitResult) -> dict[str, Any]:
    """What an outcome says of a fit, beside its scores."""
    tau, errors = result.model.tau, [row.validation for row in result.history if math.isfinite(row.validation)]
    return {
        "status": result.status,
        "steps": result.steps,
        "best_step": result.best_step,
        "seconds": round(result.seconds, 3),
        "tau_seconds": float(np.mean(tau)),
        "final_ts_over_tau": float(np.mean(result.model.ts / np.asarray(tau))),
        "validation_nrmse": min(errors, default=None),
        "structure": describe(result.model.structure),
        "consensus": None if result.trust is None else result.trust.distance,
        "version": version(),
        "message": result.message if result.status == Status.DIVERGED else "",
    }


def version() -> str:
    """The version of tausid that computes."""
    return importlib.metadata.version("tausid")


def score_columns(
    scores: Mapping[str, Scores], always: Sequence[str] = ("train", "validation", "test")
) -> dict[str, float | None]:
    """RMSE by role, and fit percent: `test_rmse`, one column for each where there are several outputs or records."""
    columns: dict[str, float | None] = dict.fromkeys(f"{role}_rmse" for role in always)
    for role, several in scores.items():
        first, *others = (several.pooled,) if role == "validation" else several.records
        for score in (first, *others):
            record = "" if score is first else f":{score.record}"
            columns |= _named(f"{role}_rmse{record}", score.rmse)
            if role not in ("train", "validation"):
                columns |= _named(f"{role}_fit_percent{record}", score.fit_percent)
    return columns


def _named(column: str, by_output: Mapping[str, float]) -> dict[str, float | None]:
    values = {output: float(value) if math.isfinite(value) else None for output, value in by_output.items()}
    if len(values) == 1:
        return {column: next(iter(values.values()))}
    return {f"{column}:{output}": value for output, value in values.items()}


def check_job(job: Job) -> None:
    """Check that the data are available and that the choices fit them, before any worker begins."""
    train, tests = load_source(job.source)
    recipe = resolve_holdout(recipe_of(job.choices, train), train, None)
    split_records(recipe, train, validation=None, test=tests or None)
