"""`fit`: from records and a recipe to a model, kept safe on disk, saying how it goes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tausid.checks import check_choice, check_whole
from tausid.data.records import Records, as_records
from tausid.engine.library import missing
from tausid.errors import ConfigError
from tausid.locks import only_writer
from tausid.model.physics import AbstractPhysics, find_physics
from tausid.storage import check_writable
from tausid.training import recipes
from tausid.training.candidates import is_searched
from tausid.training.checkpoint import ALL_FILES
from tausid.training.delays import delayed, resolve_delays, with_delays
from tausid.training.driver import Session, progress_update
from tausid.training.ensemble import Plan, check_ensemble, combine, join, member_folder, train_members
from tausid.training.interruption import interruptible
from tausid.training.outcome import advise_ensemble, make_result
from tausid.training.parts import Adam, Folds, PaperTestHalf
from tausid.training.problem import Problem
from tausid.training.progress import ProgressUpdate, make_reporter
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task, resolve
from tausid.training.result import FitResult
from tausid.training.run_state import RunState, Status
from tausid.training.search import search
from tausid.training.start import AnyTau

PROTOCOLS = ("clean", "paper")


def fit(
    records: Records,
    *,
    seed: int,
    tau: AnyTau = "bla",
    nx: int | str | None = None,
    delays: str | float | Sequence[float] | None = "auto",
    physics: AbstractPhysics | str | None = None,
    recipe: Recipe | str = "default",
    settings: Mapping[str, Any] | None = None,
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
    **parts: Any,
) -> FitResult:
    """Identify a continuous-time neural state-space model from measured records.

    The recipe `default` minimizes the simulation error of whole records (eq. 3) with Levenberg-Marquardt, for several
    structures and starts. Held-out stretches choose among them, and the model nearest to the median of several final
    fits is the result; the linear model where no other is better. `windows` minimizes the simulation error of windows
    (eq. 14) with Adam and keeps the model whose free run over held-out data is best. The same seed on the same machine
    gives the same model, bit for bit.

    Args:
        records: training records, one or several.
        seed: seed of the initial weights and of the windows drawn.
        tau: the normalization constant: `bla` or `spectrum` (estimated from the best linear approximation), `trained`
            or `trained-per-state` (from Ts/tau = 0.1 on), `bla-trained` (from the estimate on), seconds (one, or one
            per state), an estimate, or a `Tau` to train from a start.
        nx: number of states, or `auto`; by default the recipe's, or those of the known equations.
        delays: seconds after which inputs act, one number or one per input; None for no delay; `auto` finds them, in
            whole samples, with the recipe `default`.
        physics: known equations with parameters to be fitted, such as `tausid.physics.CascadedTanks()`, or their name;
            alone, or corrected by a network (`settings={"structure.correction": "network"}`).
        recipe: a `Recipe`, or `default`, `windows` or `paper`; `default` is `windows` without inputs.
        settings: changes of the recipe by key, such as `{"trainer.iterations": 60}`.
        protocol: `clean`, or `paper`, whose early stopping looks at the first half of the test record.
        validation: records to choose the best model with; by default what the recipe holds out of the training records.
        test: test record; only the `paper` protocol looks at it.
        out: folder for checkpoints; without it nothing is written.
        resume: go on from the checkpoint in `out`.
        overwrite: start anew in a folder that holds a run.
        progress: `auto` for a line on standard error, None for silence, or a function of a `ProgressUpdate`.
        ensemble: number of models to simulate as one: final fits of the same search, or, with a recipe that does not
            search, fits with seeds from `seed` on; None for one model.
        keep: how many members to keep, the best by their held-out error; by default all that do not diverge.
        workers: processes that train members side by side; by default one per core, and one where this process is
            itself a worker, as in a study.
        **parts: whole parts of the recipe, such as `trainer=LevenbergMarquardt(iterations=60)`.

    Returns:
        The best model, the last one, the history, and how it ended. Ctrl-C ends a fit with status `interrupted` and
        the best model so far.

    Raises:
        ConfigError: a setting breaks its rule, `out` holds another run, or another fit is writing to it.
        DataError: the records break a rule.
        StorageError: `out` cannot be written.

    Example:
        >>> import tausid
        >>> data = tausid.datasets.simulate_tanks(samples=200, seed=0)
        >>> quick = tausid.LevenbergMarquardt(iterations=2)
        >>> result = tausid.fit(data.train, seed=0, trainer=quick, holdout=None, progress=None)
        >>> result.status
        <Status.COMPLETED: 'completed'>
    """
    check_whole("seed", seed, 0)
    asked = change_recipe(recipe, records, physics=physics, nx=nx, settings=settings, protocol=protocol, parts=parts)
    plant = None if physics is None else find_physics(physics)
    shift = resolve_delays(delays, asked, records, known=plant is not None)
    if shift:
        records = delayed(records, shift, asked)
        validation = None if validation is None else delayed(validation, shift, asked)
        test = None if test is None else delayed(test, shift, asked)
    task = resolve(asked, records, tau=tau, seed=seed, plant=plant, validation=validation, test=test)
    problem = task.problem
    check_ensemble(ensemble, keep, workers, validated=_holds_out(problem))
    for record in (*problem.split.validation, *(() if test is None else as_records(test))):
        problem.initial_model.check(record)  # now, and not after an hour of training
    with _held_folder(out) as folder:
        if ensemble is not None and not is_searched(task):
            options = {"records": records, "tau": tau, "physics": physics, "recipe": asked, "validation": validation,
                       "test": test, "delays": None, "resume": resume, "overwrite": overwrite}  # fmt: skip
            plan = Plan(fit, options, tuple(range(seed, seed + ensemble)), problem.recipe.trainer.most, folder)
            return with_delays(_fit_members(problem, plan, keep, workers, progress), shift)
        if folder is not None:
            _prepare_folder(folder, resume=resume, overwrite=overwrite)
        if progress == "auto" and problem.recipe.integration.engine == "auto":
            _say_once_if_missing(missing())
        with make_reporter(progress, problem.initial_model) as report, interruptible() as interrupted:
            return with_delays(_fit(task, Session(folder, report, interrupted), ensemble, keep), shift)


def change_recipe(
    recipe: Recipe | str,
    records: Records | None,
    *,
    physics: AbstractPhysics | str | None = None,
    nx: int | str | None = None,
    settings: Mapping[str, Any] | None = None,
    protocol: str = "clean",
    parts: Mapping[str, Any] | None = None,
) -> Recipe:
    """The recipe that is asked for, with all changes."""
    check_choice("protocol", protocol, PROTOCOLS)
    autonomous = records is not None and as_records(records)[0].nu == 0
    found = recipes.find(recipe, autonomous=autonomous and physics is None, known=physics is not None)
    changes = {**(parts or {}), **(settings or {}), **({} if nx is None else {"structure.nx": nx})}
    if protocol == "paper":
        if any(key.partition(".")[0] == "holdout" for key in changes):
            raise ConfigError(
                "protocol 'paper' must hold out the first half of the test record; got another holdout as well. "
                "Leave it out, or use protocol 'clean'."
            )
        changes["holdout"] = PaperTestHalf()
    return found.change(changes)


def _fit(task: Task, session: Session, ensemble: int | None, keep: int | None) -> FitResult:
    problem = task.problem
    if isinstance(problem.recipe.trainer, Adam) and not isinstance(problem.recipe.holdout, Folds):
        return make_result(problem, _train(problem, session))
    found = search(task, session, ensemble or 1)
    interrupted = found.run.status == Status.INTERRUPTED
    result = make_result(found.problem, found.run, None if interrupted else found.curves, found.trust)
    advice = "" if ensemble else advise_ensemble(result.trust, result.recipe)
    result = dataclasses.replace(result, message=" ".join(filter(None, (result.message, advice, found.tried_on))))
    return result if ensemble is None or interrupted else join(result, found.members[: keep or ensemble])


def _train(problem: Problem, session: Session) -> RunState:
    """One training by itself; what an earlier session finished is not done again."""
    run = session.resume(problem) or session.begin(problem)
    run = session.train(problem, run, functools.partial(progress_update, problem), kept=True)
    if run.status != Status.INTERRUPTED:
        session.keep(problem, run)
    return run


def _holds_out(problem: Problem) -> bool:
    return bool(problem.split.validation) or isinstance(problem.recipe.holdout, Folds)


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
    interrupted = len(results) < len(plan.seeds) or any(result.status == Status.INTERRUPTED for result in results)
    if not results:  # stopped before any member took a step: the untrained model is what there is
        weights = problem.first_weights
        untrained = RunState(None, weights, 0, weights, float("inf"), 0, (), 0.0, Status.INTERRUPTED)
        results = [make_result(problem, untrained)]
    return combine(results, problem.split, keep=keep, interrupted=interrupted)


@contextlib.contextmanager
def _held_folder(out: str | os.PathLike[str] | None) -> Iterator[Path | None]:
    """The folder for checkpoints, which no other fit may use meanwhile."""
    if out is None:
        yield None
        return
    folder = check_writable(out)
    with only_writer(folder):
        yield folder


def _prepare_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    check_writable(folder)
    if overwrite:
        for path in folder.glob(ALL_FILES):
            path.unlink()
    if not resume and any(folder.glob(ALL_FILES)):
        raise ConfigError(
            f"`out` must be a folder without a run; {folder} holds one. Resume it, or choose another folder."
        )


@functools.cache
def _say_once_if_missing(reason: str | None) -> None:
    if reason is not None:
        print(
            f"note: training uses JAX and is slower, as the compiled engine is not available: {reason}", file=sys.stderr
        )
