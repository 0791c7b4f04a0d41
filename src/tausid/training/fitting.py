"""`fit`: put a problem together, train it, keep it safe on disk, and say how it goes."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.records import Records, as_records
from tausid.engine.fused import fused_missing
from tausid.errors import ConfigError
from tausid.linear import LinearModel
from tausid.linear.tau_estimation import TauEstimate
from tausid.model.config import Config
from tausid.model.physics import AbstractPhysics, find_physics
from tausid.model.tau import Tau
from tausid.storage import check_writable
from tausid.training.checkpoint import (
    FILE_NAME,
    FOLD_NAME,
    load_checkpoint,
    load_fold_curves,
    save_checkpoint,
    save_fold_curves,
)
from tausid.training.choosing import Choice, TrialPoint, Trials, choose, close_settings, count_choices
from tausid.training.ensemble import Plan, check_ensemble, combine, member_folder, train_members
from tausid.training.everything import fit_everything
from tausid.training.folds import cut_folds, fold_config, train_folds
from tausid.training.held_out import hold_out
from tausid.training.interruption import interruptible
from tausid.training.known import settle_physics
from tausid.training.loop import Problem, RunState, advance, progress_update, start_run
from tausid.training.outcome import make_result
from tausid.training.progress import ProgressUpdate, make_reporter
from tausid.training.protocols import Split, split_records
from tausid.training.result import FitResult, FoldCurve, FoldCurves
from tausid.training.setup import choose_settings, settle, start_problem
from tausid.training.starting import approximate, settle_states

SECONDS_BETWEEN_CHECKPOINTS = 10.0
CHECKPOINTS = "checkpoint*.safetensors"


def fit(
    records: Records,
    *,
    tau: float | Sequence[float] | str | Tau | TauEstimate = "bla",
    seed: int,
    nx: int | str | None = None,
    physics: AbstractPhysics | str | None = None,
    recipe: str = "default",
    protocol: str = "clean",
    validation: Records | None = None,
    test: Records | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[ProgressUpdate], None] | str | None = "auto",
    ensemble: int | None = None,
    keep: int | None = None,
    workers: int | None = None,
    **settings: Any,
) -> FitResult:
    """Identify a continuous-time neural state-space model from measured records.

    The recipe `default` starts from the best linear approximation and minimizes the simulation error of whole records
    (eq. 3) with Levenberg-Marquardt; held-out stretches say after how many iterations to stop. `windows` minimizes that
    of windows (eq. 14) with Adam and keeps the model whose free run over held-out data is best. The same seed on the
    same machine gives the same model, bit for bit.

    Args:
        records: training records, one or several.
        tau: the normalization constant: `bla` or `spectrum` (estimated from the best linear approximation), `trained`
            or `trained-per-state` (from Ts/tau = 0.1 on), `bla-trained` (from the estimate on), seconds (one, or one
            per state), an estimate, or a `Tau` to train from a start.
        seed: seed of the initial weights and of the windows drawn.
        nx: number of states, or `auto` for those of the best linear approximation, or of a tau per state; by default
            the recipe's, or those of the known equations.
        physics: known equations with parameters to be fitted, such as `tausid.physics.CascadedTanks()`, or their name;
            alone, or corrected by a network (`correction="network"`).
        recipe: `default`, `windows` or `paper`; `default` is `windows` without inputs.
        protocol: `clean`, or `paper`, whose early stopping looks at the first half of the test record.
        validation: records to choose the best model with; by default what the recipe holds out of the training records.
        test: test record; only the `paper` protocol looks at it.
        out: folder for checkpoints; without it nothing is written.
        resume: go on from the checkpoint in `out`.
        overwrite: start anew in a folder that holds a run.
        progress: `auto` for a line on standard error, None for silence, or a function of a `ProgressUpdate`.
        ensemble: number of models to train, with seeds from `seed` on, and to simulate as one; None for one model.
        keep: how many members to keep, the best by their held-out error; by default all that do not diverge.
        workers: processes that train members side by side; by default one per core, and one where this process is
            itself a worker, as in a study.
        **settings: any other field of `Config`, such as `horizon=64` or `stepper="heun"`.

    Returns:
        The best model, the last one, the history, and how it ended. Ctrl-C ends a fit with status `interrupted` and
        what was found so far.

    Raises:
        ConfigError: a setting breaks its rule, or `out` holds another run.
        DataError: the records break a rule.
        StorageError: `out` cannot be written.

    Example:
        >>> import tausid
        >>> data = tausid.datasets.simulate_tanks(samples=200, seed=0)
        >>> result = tausid.fit(data.train, seed=0, folds=0, finish_steps=2, progress=None)
        >>> result.status
        'completed'
    """
    sizes = {} if nx is None else {"nx": nx}
    given = {"protocol": protocol, "seed": seed, **sizes, **settings}
    config = choose_settings(recipe, given, records=as_records(records), physics=physics, validation=validation)
    config = settle_states(config, tau)
    split = split_records(records, config, validation=validation, test=test)
    config = settle(config, split.train)
    plant = None if physics is None else find_physics(physics)
    config = settle_physics(config, plant, split.train, nx=nx)
    held_out = bool(split.validation) or config.folds > 0
    check_ensemble(ensemble, keep, workers, validated=held_out)
    problem = start_problem(close_settings(config, held_out=held_out), tau, split, plant)
    for record in (*split.validation, *(() if test is None else as_records(test))):
        problem.initial_model.check(record)  # now, and not after an hour of training
    if ensemble is not None:
        options = {"records": records, "tau": tau, "nx": nx, "physics": physics, "recipe": recipe,
                   "protocol": protocol, "validation": validation, "test": test, "resume": resume,
                   "overwrite": overwrite, **settings}  # fmt: skip
        plan = Plan(fit, options, tuple(range(seed, seed + ensemble)), all_steps(config, problem.config),
                    None if out is None else Path(out))  # fmt: skip
        return _fit_members(problem, plan, keep, workers, progress)
    folder = None if out is None else _prepare_folder(Path(out), resume=resume, overwrite=overwrite)
    reporter = make_reporter(progress, problem.initial_model)
    if progress == "auto" and config.engine == "auto":
        _say_once_if_missing(fused_missing())
    choice = Choice(problem.config)
    with reporter as report, interruptible() as interrupted:
        if config.folds and config.max_steps > 0:
            problem, run, curves = _train_folds(problem, folder, report, interrupted)
            choice = dataclasses.replace(choice, curves=curves)
        else:
            if held_out and config.max_steps == 0:
                start = functools.partial(start_problem, tau=tau, plant=plant)
                problem, choice = _choose(config, problem, start, folder, report, interrupted)
            run = _begin(problem, folder)
            if not run.finished:
                run = dataclasses.replace(run, seconds=run.seconds + choice.seconds)
        run = _train(problem, run, folder, report, interrupted)
        if config.finish != "none" and run.status in ("completed", "early-stopped"):
            run = _finish(problem, run, choice, folder, report, interrupted)
            choice = dataclasses.replace(choice, curves=None) if run.status == "interrupted" else choice
    return make_result(problem, run, choice.curves)


def _fit_members(
    problem: Problem,
    plan: Plan,
    keep: int | None,
    workers: int | None,
    progress: Callable[[ProgressUpdate], None] | str | None,
) -> FitResult:
    if plan.out is not None:
        for number in range(len(plan.seeds)):
            resume, overwrite = plan.options["resume"], plan.options["overwrite"]
            _prepare_folder(member_folder(plan.out, number), resume=resume, overwrite=overwrite)
    # Folders were looked at above: what a member finds in its own by now is its own.
    plan = dataclasses.replace(plan, options={**plan.options, "resume": True, "overwrite": False})
    with make_reporter(progress, problem.initial_model) as report:
        results = train_members(plan, report, workers=workers)
    interrupted = len(results) < len(plan.seeds) or any(result.status == "interrupted" for result in results)
    if not results:  # stopped before any member took a step: the untrained model is what there is
        results = [make_result(problem, dataclasses.replace(start_run(problem), status="interrupted"))]
    return combine(results, problem.split, keep=keep, interrupted=interrupted)


def _prepare_folder(folder: Path, *, resume: bool, overwrite: bool) -> Path:
    check_writable(folder)
    if overwrite:
        for path in folder.glob(CHECKPOINTS):
            path.unlink()
    if not resume and any(folder.glob(CHECKPOINTS)):
        raise ConfigError(
            f"`out` must be a folder without a run; {folder} holds one. Resume it, or choose another folder."
        )
    return folder


@functools.cache
def _say_once_if_missing(reason: str | None) -> None:
    if reason is not None:
        print(f"note: training uses the slower engine scan, as fused is not available: {reason}", file=sys.stderr)


def _begin(problem: Problem, folder: Path | None, name: str = FILE_NAME) -> RunState:
    fresh = start_run(problem)
    saved = None if folder is None else load_checkpoint(folder, problem, fresh, name)
    if saved is None:
        return fresh
    return dataclasses.replace(saved, status="running") if saved.status == "interrupted" else saved


def _train(
    problem: Problem,
    run: RunState,
    folder: Path | None,
    report: Callable[[ProgressUpdate], None],
    interrupted: threading.Event,
) -> RunState:
    saved_at = -SECONDS_BETWEEN_CHECKPOINTS
    while run.status == "running":
        before = run
        run = advance(problem, run)
        if interrupted.is_set() and run.status == "running":
            run = dataclasses.replace(run, status="interrupted")
        report(progress_update(problem, before, run))
        due = time.monotonic() - saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        if folder is not None and (due or run.status != "running"):
            save_checkpoint(folder, problem, run)
            saved_at = time.monotonic()
    return run


def _choose(
    asked: Config,
    problem: Problem,
    start: Callable[..., Problem],
    folder: Path | None,
    report: Callable[[ProgressUpdate], None],
    interrupted: threading.Event,
) -> tuple[Problem, Choice]:
    """The problem with what held-out data say of its structure, and what they say of its end; trials that an
    interrupted run has on disk are not repeated."""
    most, first, choices = problem.config.finish_steps, problem, count_choices(asked, problem.config)
    if choices == 1 and not asked.folds:
        return problem, Choice(problem.config)

    @functools.cache
    def linear(split: Split, order: int) -> LinearModel:
        return approximate(split.train, first.config, order=order)

    def make(config: Config, split: Split) -> Problem:
        # As on all records: further states than the linear approximation of these has start apart from it.
        bla = None if first.linear_order is None else linear(split, min(config.order, first.linear_order))
        return start(config, split=split, bla=bla, scaling=first.initial_model.scaling)

    def tell(at: TrialPoint) -> None:
        row, number = at.run.history[-1], len(at.run.history)
        report(
            ProgressUpdate(
                step=at.trials * most + number,
                max_steps=(at.planned + 1) * most,
                loss=row.loss,
                validation=row.validation,
                best=at.run.best_score,
                best_step=at.trials * most + at.run.best_step,
                recoveries=0,
                steps_per_second=number / max(at.run.seconds, 1e-9) if number > 1 else float("nan"),
                status="running",
                note=f"{at.label}, iteration {number}",
            )
        )

    def keep(done: Mapping[str, FoldCurve]) -> None:
        if folder is not None:
            save_fold_curves(folder, first, done)

    known = {} if folder is None else load_fold_curves(folder, first)
    splits = hold_out(problem.split, problem.config)
    trials = Trials(splits, make, known=known, keep=keep, report=tell, interrupted=interrupted, planned=choices)
    choice = choose(asked, problem.config, trials)
    if choice.config != problem.config:
        problem = start(choice.config, split=problem.split)
    return problem, choice


def _finish(
    problem: Problem,
    run: RunState,
    choice: Choice,
    folder: Path | None,
    report: Callable[[ProgressUpdate], None],
    interrupted: threading.Event,
) -> RunState:
    """The second-order steps, kept when they are done; what was interrupted in them resumes with the first of them."""
    if run.finished:
        return run
    done = fit_everything(problem, run, choice, report, interrupted)
    if folder is not None and done.finished:
        save_checkpoint(folder, problem, done)
    return done


def _plant_of(problem: Problem) -> AbstractPhysics | None:
    known = problem.initial_model.physics
    return None if known is None else known.plant


def all_steps(asked: Config, start: Config) -> int:
    """All steps of a fit, for its progress: those of Adam, of trials on held-out data, and of the finish."""
    last = 0 if start.finish == "none" else start.finish_steps
    trials = count_choices(asked, start) * max(start.folds, 1) if start.max_steps == 0 else 0
    return start.max_steps + last * (1 + trials)


def _train_folds(
    whole: Problem, folder: Path | None, report: Callable[[ProgressUpdate], None], interrupted: threading.Event
) -> tuple[Problem, RunState, FoldCurves]:
    """Train the folds; then the problem on everything, with as many steps as they chose, and where it begins.

    Where the folds did not come to an end, what comes back is the first of them, with the status that says so.
    """
    config, tau, plant = whole.config, whole.initial_model.state_space.tau, _plant_of(whole)
    problems = [start_problem(fold_config(config), tau, split, plant) for split in cut_folds(whole.split.train, config)]
    runs = [_begin(problem, folder, FOLD_NAME.format(k)) for k, problem in enumerate(problems, 1)]
    saved_at = [-SECONDS_BETWEEN_CHECKPOINTS] * len(problems)

    def after(k: int, before: RunState, run: RunState) -> bool:
        report(dataclasses.replace(progress_update(problems[k], before, run), note=f"fold {k + 1} of {len(problems)}"))
        if folder is not None and time.monotonic() - saved_at[k] >= SECONDS_BETWEEN_CHECKPOINTS:
            save_checkpoint(folder, problems[k], run, FOLD_NAME.format(k + 1))
            saved_at[k] = time.monotonic()
        return interrupted.is_set()

    done, curves = train_folds(problems, runs, patience=config.patience, after=after)
    if folder is not None:
        for k, (problem, run) in enumerate(zip(problems, done, strict=True), 1):
            save_checkpoint(folder, problem, run, FOLD_NAME.format(k))
    if interrupted.is_set() or np.isinf(curves.lowest):
        status = "interrupted" if interrupted.is_set() else "diverged"
        return problems[0], dataclasses.replace(done[0], status=status), curves
    final = dataclasses.replace(whole, last_step=curves.chosen)
    begun = _begin(final, folder)
    spent = begun.seconds if begun.history else sum(run.seconds for run in done)
    return final, dataclasses.replace(begun, seconds=spent), curves
