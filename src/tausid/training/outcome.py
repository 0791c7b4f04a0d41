"""What a fit gives back of a run: the best and the last model, the history, and in words how it ended."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform

import numpy as np

from tausid.training.checkpoint import fingerprint
from tausid.training.choosing import describe
from tausid.training.limits import describe_limits
from tausid.training.loop import Problem, RunState
from tausid.training.result import FitResult, FoldCurves, HistoryRow


def make_result(problem: Problem, run: RunState, curves: FoldCurves | None = None) -> FitResult:
    """What the user gets of a run."""
    versions = program_versions()
    provenance = {
        "status": run.status,
        "steps": run.step,
        "best_step": run.best_step,
        "versions": versions,
        "train": [record.name for record in problem.split.train],
        "validation": [record.name for record in problem.split.validation],
        "preparation": {record.name: list(record.history) for record in problem.split.train if record.history},
        "data": fingerprint((*problem.split.train, *problem.split.validation)),
        **({} if curves is None else {"folds": dataclasses.asdict(curves)}),
    }
    best, last = (
        dataclasses.replace(problem.model_with(weights), provenance=provenance)
        for weights in (run.best_weights, run.optimiser.weights)
    )
    iterations = sum(row.learning_rate != row.learning_rate for row in run.history)  # these have no rate
    counted = f"{iterations} iteration{'s' * (iterations > 1)} of {problem.config.finish}"
    finished = f"{counted}{_chosen_by(problem, run, curves)}{_begun_with(run)}." if iterations else ""
    ended = run.finished and run.status == "completed"
    structure = f"{describe(problem.config)}." if (iterations or ended) and problem.config.max_steps == 0 else ""
    limited = describe_limits(problem.config.output_limits, best.output_names, best.output_units)
    return FitResult(
        model=best,
        last_model=last,
        history=run.history if curves is None else _with_pooled(run.history, curves),
        status=run.status,
        message=" ".join(part for part in (_message(problem, run, curves), finished, structure, limited) if part),
        steps=run.step,
        best_step=run.best_step,
        seconds=run.seconds,
        config=problem.config,
        seed=problem.config.seed,
        versions=versions,
        folds=curves,
    )


def _with_pooled(history: tuple[HistoryRow, ...], curves: FoldCurves) -> tuple[HistoryRow, ...]:
    """The history of a final fit, which has no validation of its own, with what the folds had after as many steps."""
    pooled = dict(zip(curves.steps, curves.pooled, strict=True))
    return tuple(dataclasses.replace(row, validation=pooled.get(row.step, row.validation)) for row in history)


def program_versions() -> dict[str, str]:
    """Versions of the programs that a result depends on."""
    names = ("tausid", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


def _message(problem: Problem, run: RunState, curves: FoldCurves | None) -> str:
    config = problem.config
    if config.max_steps == 0:
        return _message_of_finish(problem, run, curves)
    if run.status == "diverged":
        return (
            f"training left the finite numbers {run.recoveries} times, or no free run stayed finite; the best model so "
            f"far (step {run.best_step}) is kept. Try a larger tau, A_start='-I', more substeps or a lower rate."
        )
    if run.status == "interrupted":
        return f"stopped at step {run.step} of {problem.stop}; resume to go on, bit for bit as if never stopped."
    if run.status == "early-stopped":
        return (
            f"no better validation score for {config.patience} steps; the best model is that of step {run.best_step}."
        )
    if problem.last_step is not None:
        return f"{config.folds} folds chose {problem.stop} steps; the model was trained for as many on everything."
    return f"all {config.max_steps} steps were taken; the best model is that of step {run.best_step}."


def _message_of_finish(problem: Problem, run: RunState, curves: FoldCurves | None) -> str:
    if run.status == "diverged":
        return (
            f"{_what_diverged(run, curves)}, so the model is the one that training began with. Try a larger tau, more "
            "substeps, or recipe='windows'."
        )
    if run.status == "interrupted":
        where = f"at iteration {run.step}" if run.step else "before the first iteration on everything"
        return f"stopped {where}; resume to go on, bit for bit as if never stopped."
    if run.finished and curves is not None and curves.chosen == 0:
        return (
            f"held-out data prefer the {_start_of(problem)}: no iteration of {problem.config.finish} is better over "
            f"{len(curves.scores)} folds, and none was taken."
        )
    return ""


def _what_diverged(run: RunState, curves: FoldCurves | None) -> str:
    if curves is not None:
        folds = len(curves.scores)
        lost = [str(k) for k, scores in enumerate(curves.scores, 1) if not np.isfinite(scores).any()]
        where = f"in fold {' and '.join(lost)} of {folds}" if lost else f"at no iteration in all of {folds} folds"
        return f"held-out stretches were {'not ' * bool(lost)}simulated with finite numbers {where}"
    if run.history and np.isfinite(run.history[-1].loss):
        return "no simulation of the validation records stayed finite"
    return "no simulation of the whole training records stayed finite"


def _start_of(problem: Problem) -> str:
    if problem.initial_model.physics is not None:
        return "known equations as they are"
    linear = problem.linear_order is not None and problem.config.nonlinear_start == "zero"
    return "linear model" if linear else "model that training began with"


def _begun_with(run: RunState) -> str:
    if not run.from_fold:
        return ""
    return f", from the weights of fold {run.from_fold} on: from their own start they led to a worse model"


def _chosen_by(problem: Problem, run: RunState, curves: FoldCurves | None) -> str:
    if problem.config.max_steps > 0:
        return " followed"
    if curves is not None:
        return f", chosen by {len(curves.scores)} folds"
    if not problem.split.validation or not run.finished:
        return ""
    return (
        f", of which validation chose number {run.best_step}"
        if run.best_step
        else (f", and validation prefers the {_start_of(problem)}")
    )
