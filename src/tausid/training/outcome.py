"""What a fit gives back of a run: the best and the last model, the history, and in words how it ended."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform

import numpy as np

from tausid.training.candidates import describe, is_linear
from tausid.training.checkpoint import fingerprint
from tausid.training.limits import describe_limits
from tausid.training.parts import Adam, FromLinear
from tausid.training.problem import Problem
from tausid.training.recipe import Recipe
from tausid.training.result import FAR_APART, FitResult, FoldCurves, HistoryRow, Trust
from tausid.training.run_state import RunState, Status


def make_result(
    problem: Problem, run: RunState, curves: FoldCurves | None = None, trust: Trust | None = None
) -> FitResult:
    """What the user gets of a run."""
    versions = program_versions()
    provenance = {
        "status": str(run.status),
        "recipe": problem.recipe.as_dict(),
        "seed": problem.seed,
        "steps": run.step,
        "best_step": run.best_step,
        "versions": versions,
        "train": [record.name for record in problem.split.train],
        "validation": [record.name for record in problem.split.validation],
        "preparation": {record.name: list(record.history) for record in problem.split.train if record.history},
        "data": fingerprint((*problem.split.train, *problem.split.validation)),
        **({} if curves is None else {"folds": dataclasses.asdict(curves)}),
        **({} if trust is None else {"trust": dataclasses.asdict(trust)}),
    }
    best, last = (
        dataclasses.replace(problem.model_with(weights), provenance=provenance)
        for weights in (run.best_weights, run.weights)
    )
    limited = describe_limits(problem.recipe.structure.output_limits, best.output_names, best.output_units)
    by_adam = isinstance(problem.recipe.trainer, Adam)
    message = _message_of_adam(problem, run, curves) if by_adam else _message_of_lm(problem, run, curves)
    message = f"{message} {describe_trust(trust)}".strip()
    if problem.recipe.trainer.robust:
        message += " The loss is robust: single errors far beyond the usual ones hardly count."
    return FitResult(
        model=best,
        last_model=last,
        history=run.history if curves is None else _with_pooled(run.history, curves),
        status=run.status,
        message=f"{message} {limited}".strip(),
        steps=run.step,
        best_step=run.best_step,
        seconds=run.seconds,
        recipe=problem.recipe,
        seed=problem.seed,
        versions=versions,
        folds=curves,
        trust=trust,
    )


def _with_pooled(history: tuple[HistoryRow, ...], curves: FoldCurves) -> tuple[HistoryRow, ...]:
    """The history of a final fit, which has no validation of its own, with what the folds had after as many steps."""
    return tuple(dataclasses.replace(row, validation=curves.at(row.step)) for row in history)


def program_versions() -> dict[str, str]:
    """Versions of the programs that a result depends on."""
    names = ("tausid", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


def _message_of_adam(problem: Problem, run: RunState, curves: FoldCurves | None) -> str:
    trainer = problem.recipe.trainer
    assert isinstance(trainer, Adam)
    if run.status == Status.DIVERGED:
        return (
            f"training diverged {run.recoveries} times, or no free run stayed finite; the best model so far (step "
            f"{run.best_step}) is kept. Try a larger tau, start.A=-I, more substeps or a lower learning rate."
        )
    if run.status == Status.INTERRUPTED:
        return f"stopped; the model is that of step {run.step}. Resume to go on, bit for bit as if never stopped."
    if run.status == Status.EARLY_STOPPED:
        return (
            f"no lower validation error for {trainer.patience} steps; the best model is that of step {run.best_step}."
        )
    if curves is not None:
        return f"{len(curves.scores)} folds chose {problem.stop} steps; the final fit on all records took as many."
    return f"all {trainer.steps} steps were taken; the best model is that of step {run.best_step}."


def _message_of_lm(problem: Problem, run: RunState, curves: FoldCurves | None) -> str:
    if run.status == Status.DIVERGED:
        return (
            f"{_what_diverged(run, curves)}, so the model is the one that training began with. Try a larger tau, more "
            "substeps, or recipe='windows'."
        )
    if run.status == Status.INTERRUPTED:
        found = f"the best trial so far ({describe(problem.recipe.structure)})" if run.history else "untrained"
        return f"stopped before the end; the model is {found}. Resume to go on, bit for bit as if never stopped."
    known = problem.initial_model.physics
    if known is not None and not known.trainable:
        return "the parameters of the known equations were fitted to whole records by least squares."
    structure = f"{describe(problem.recipe.structure)}."
    if curves is not None and curves.chosen == 0:
        return (
            f"held-out data prefer the {_start_of(problem)}: no iteration is better over {len(curves.scores)} folds, "
            f"and none was taken. {structure}"
        )
    count = f"{run.step} iteration{'s' * (run.step > 1)}"
    return f"{count}{_chosen_by(problem, run, curves)}. {structure}"


def describe_trust(trust: Trust | None) -> str:
    """In one or two sentences, how far a model can be trusted."""
    if trust is None or trust.held_out is None:
        return ""
    told = f"Held-out error {_percent(trust.held_out)} of the outputs' standard deviation"
    told += _beside_linear(trust)
    if trust.distance is not None:
        told += (
            f" {trust.members} models trained independently agree within {_percent(trust.distance)} on other inputs."
        )
    return told


def advise_ensemble(trust: Trust | None, recipe: Recipe) -> str:
    """That several models are better than one where nonlinear fits lie far apart; empty where they do not."""
    if trust is None or trust.distance is None or trust.distance <= FAR_APART or is_linear(recipe):
        return ""
    apart = _percent(trust.distance)
    return f"As fits lie {apart} apart, an ensemble (ensemble=5, or --ensemble 5) is safer than one model."


def _beside_linear(trust: Trust) -> str:
    """How the held-out error compares with the linear model's, and why that one was taken, if so."""
    if trust.linear is None:
        return "."
    if trust.doubt is not None:
        return (
            ". Nonlinear models have a lower one, but on other inputs they lie apart by "
            f"{_percent(trust.doubt)} of what sets them apart from this linear model."
        )
    if trust.held_out == trust.linear:
        return "; no nonlinear model is clearly better."
    return f"; the linear model has {_percent(trust.linear)}."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


def _what_diverged(run: RunState, curves: FoldCurves | None) -> str:
    if curves is not None:
        folds = len(curves.scores)
        lost = [str(k) for k, scores in enumerate(curves.scores, 1) if not np.isfinite(scores).any()]
        if lost:
            return f"every simulation of held-out data diverged in fold {' and '.join(lost)} of {folds}"
        return f"at each iteration a simulation of held-out data diverged in one of {folds} folds"
    if run.history and np.isfinite(run.history[-1].loss):
        return "every simulation of the validation records diverged"
    return "every simulation of the whole training records diverged"


def _start_of(problem: Problem) -> str:
    if problem.initial_model.physics is not None:
        return "known equations as they are"
    start = problem.recipe.start
    linear = isinstance(start, FromLinear) and start.nonlinear == "zero" and not start.stretches
    return "linear model" if linear else "model that training began with"


def _chosen_by(problem: Problem, run: RunState, curves: FoldCurves | None) -> str:
    if curves is not None:
        folds = f"{len(curves.scores)} folds"
        return f", chosen by {folds}" if run.step == curves.chosen else f"; {folds} chose {curves.chosen}"
    if not problem.split.validation:
        return ""
    if run.best_step:
        return f", of which validation chose number {run.best_step}"
    return f", and validation prefers the {_start_of(problem)}"
