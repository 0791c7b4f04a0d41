"""`fit`: put a problem together, train it, keep it safe on disk, and say how it goes."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tausid.clocks import has_one_clock, median_step, spans
from tausid.config import Config, recipe_config
from tausid.errors import ConfigError
from tausid.linear import LinearModel
from tausid.models import build_state_space
from tausid.physics import AbstractPhysics, find_physics
from tausid.progress import ProgressUpdate, make_reporter
from tausid.records import Record, Records, as_records
from tausid.rollout import fused_missing
from tausid.scaling import Scaling
from tausid.simulation import Model, longest_step, make_integrator, with_limits
from tausid.storage import check_writable
from tausid.tau import Tau
from tausid.tau_estimation import TauEstimate
from tausid.training.checkpoint import (
    FILE_NAME,
    FOLD_NAME,
    fingerprint,
    load_checkpoint,
    load_fold_curves,
    save_checkpoint,
    save_fold_curves,
)
from tausid.training.ensemble import Plan, check_ensemble, combine, member_folder, train_members
from tausid.training.finishing import FoldPoint, choices_of_parts, choose_iterations, finish, rounds
from tausid.training.folds import cut_folds, fold_config, train_folds
from tausid.training.interruption import interruptible
from tausid.training.known import KnownStart, fit_known, settle_physics, start_from_known
from tausid.training.limits import describe_limits, settle_limits
from tausid.training.loop import Problem, RunState, Stage, advance, start_run
from tausid.training.protocols import Split, split_records
from tausid.training.result import FitResult, FoldCurve, FoldCurves, HistoryRow
from tausid.training.starting import Start, approximate, find_start, settle_order, start_from_bla
from tausid.windows import WindowSource

SECONDS_BETWEEN_CHECKPOINTS = 10.0
# Samples of all training records beyond which the default recipe holds out their end in place of folds.
FOLDED_SAMPLES = 20_000
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
        nx: number of states, or `auto` for those of the best linear approximation; by default the recipe's, or those of
            the known equations.
        physics: known equations with parameters to be fitted, such as `tausid.physics.CascadedTanks()`, or their name;
            alone, or corrected by a network (`correction="network"`).
        recipe: `default`, `windows` or `paper`; `default` is `windows` without inputs and with known equations.
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
    split = split_records(records, config, validation=validation, test=test)
    config = settle(config, split.train)
    plant = None if physics is None else find_physics(physics)
    config = settle_physics(config, plant, split.train, nx=nx)
    check_ensemble(ensemble, keep, workers, validated=bool(split.validation) or config.folds > 0)
    problem = start_problem(config, tau, split, plant)
    config = problem.config
    for record in (*split.validation, *(() if test is None else as_records(test))):
        problem.initial_model.check(record)  # now, and not after an hour of training
    if ensemble is not None:
        found = problem.initial_model.state_space.tau
        options = {"records": records, "tau": found, "nx": nx, "physics": physics, "recipe": recipe,
                   "protocol": protocol, "validation": validation, "test": test, "resume": resume,
                   "overwrite": overwrite, **settings}  # fmt: skip
        return _fit_members(problem, options, ensemble, keep, workers, None if out is None else Path(out), progress)
    folder = None if out is None else _prepare_folder(Path(out), resume=resume, overwrite=overwrite)
    reporter = make_reporter(progress, problem.initial_model)
    if progress == "auto" and config.engine == "auto":
        _say_once_if_missing(fused_missing())
    curves = None
    with reporter as report, interruptible() as interrupted:
        if config.folds and config.max_steps > 0:
            problem, run, curves = _train_folds(problem, folder, report, interrupted)
        else:
            run = _begin(problem, folder)
        run = _train(problem, run, folder, report, interrupted)
        if config.finish != "none" and run.status in ("completed", "early-stopped"):
            run, said = _finish(problem, run, folder, report, interrupted)
            curves = said or curves
    return make_result(problem, run, curves)


def _fit_members(
    problem: Problem,
    options: dict[str, Any],
    count: int,
    keep: int | None,
    workers: int | None,
    out: Path | None,
    progress: Callable[[ProgressUpdate], None] | str | None,
) -> FitResult:
    config = problem.config
    if out is not None:
        for number in range(count):
            resume, overwrite = options["resume"], options["overwrite"]
            _prepare_folder(member_folder(out, number), resume=resume, overwrite=overwrite)
    seeds = tuple(range(config.seed, config.seed + count))
    # Folders were looked at above: what a member finds in its own by now is its own.
    plan = Plan(fit, {**options, "resume": True, "overwrite": False}, seeds, all_steps(config), out)
    with make_reporter(progress, problem.initial_model) as report:
        results = train_members(plan, report, workers=workers)
    interrupted = len(results) < count or any(result.status == "interrupted" for result in results)
    if not results:  # stopped before any member took a step: the untrained model is what there is
        results = [make_result(problem, dataclasses.replace(start_run(problem), status="interrupted"))]
    return combine(results, problem.split, keep=keep, interrupted=interrupted)


def choose_settings(
    recipe: str,
    settings: Mapping[str, Any],
    *,
    records: Sequence[Record] = (),
    physics: AbstractPhysics | str | None = None,
    validation: Records | None = None,
) -> Config:
    """The settings of a recipe with changes; `default` gives way to what it cannot do.

    It grows out of a linear approximation, and is `windows` where there is none: without inputs, and with known
    equations, which have a start of their own. It has no folds where something else is held out, and holds out the
    end of records that are long enough to spare it.

    Args:
        recipe: the recipe asked for.
        settings: fields of `Config` to change.
        records: training records, where they are known already.
        physics: known equations.
        validation: validation records.

    Returns:
        The settings.

    Raises:
        ConfigError: an unknown recipe or setting, or a value breaks its rule.
    """
    if recipe != "default":
        return recipe_config(recipe, **settings)
    if physics is not None or (records and records[0].nu == 0):
        return recipe_config("windows", **settings)
    held_out = validation is not None or settings.get("validation_fraction") or settings.get("protocol") == "paper"
    if held_out or settings.get("initial_state") == "free":
        return recipe_config(recipe, **{"folds": 0, **settings})
    long = sum(len(record) for record in records) > FOLDED_SAMPLES
    instead = {"folds": 0, "validation_fraction": 0.2} if long and not settings.get("folds") else {}
    return recipe_config(recipe, **{**instead, **settings})


def settle(config: Config, records: Sequence[Record]) -> Config:
    """The settings with what depends on the records: whether the encoder sees time stamps, and limits
    of the outputs.

    Args:
        config: the settings.
        records: training records.

    Returns:
        The settings; the same where the records have one clock.

    Raises:
        ConfigError: not one weight or one pair of limits per output.
    """
    weights = config.output_weights
    if weights is not None and len(weights) != records[0].ny:
        raise ConfigError(
            f"`output_weights` must have one number per output; got {len(weights)} for {records[0].ny} outputs. "
            f"Give {records[0].ny}."
        )
    config = dataclasses.replace(config, output_limits=settle_limits(config.output_limits, records))
    if config.clock != "auto" or has_one_clock(records):
        return config
    return dataclasses.replace(config, clock="irregular")


def start_problem(
    config: Config,
    tau: float | Sequence[float] | str | Tau | TauEstimate,
    split: Split,
    plant: AbstractPhysics | None = None,
    bla: LinearModel | None = None,
) -> Problem:
    """A problem whose start is found from its training records: tau, the weights, the parameters of known equations.

    Args:
        config: the settings.
        tau: as for `fit`.
        split: records by role.
        plant: known equations, if there are any.
        bla: the linear approximation of the training records, where it is known already.

    Returns:
        The problem.

    Raises:
        ConfigError: the settings do not fit the records.
        DataError: a channel is constant, or the records cannot carry a linear approximation.
    """
    if bla is None:
        config, bla = settle_order(config, split.train)
    start = find_start(tau, split.train, config, bla)
    if plant is not None and config.correction == "none" and start.tau.trainable:
        raise ConfigError(
            "`tau` must not be trained where no network corrects known equations, as nothing depends on it then; "
            f"got {tau!r}. Leave it out, or set correction='network'."
        )
    known = None if plant is None else fit_known(plant, split.train, config)
    return make_problem(config, start, split, known)


def make_problem(config: Config, start: Start, split: Split, known: KnownStart | None = None) -> Problem:
    """Scaling, windows and untrained model for these records.

    Args:
        config: the settings.
        start: tau, and a linear approximation where the weights start from it.
        split: records by role.
        known: known equations, fitted to the training records.

    Returns:
        The problem.

    Raises:
        ConfigError: the settings do not fit the records.
        DataError: a channel is constant.
    """
    first = split.train[0]
    ts = median_step(split.train)
    scaling = Scaling.from_records(split.train)
    state_space = build_state_space(
        config,
        start.tau,
        nu=first.nu,
        ny=first.ny,
        n_records=len(split.train),
        rng=np.random.default_rng(config.seed),
        physics=None if known is None else known.known,
    )
    n_past = state_space.initial.n_past
    sees_time = config.clock == "irregular" and n_past > 0
    make_windows = functools.partial(
        WindowSource.from_records,
        scaling=scaling,
        n_past=n_past,
        longest=longest_step(config, ts),
        hold=config.hold,
        ts=ts if sees_time else None,
    )
    stages = make_stages(config, functools.partial(make_windows, split.train))
    windows_validate = config.validation_error == "windows" and split.validation
    if config.init == "bla" and start.bla is not None:
        state_space = start_from_bla(state_space, start.bla, split.train, stages[0].source)
    if known is not None:
        state_space = start_from_known(state_space, known, stages[0].source)
    model = Model(
        state_space=with_limits(state_space, config, scaling),
        scaling=scaling,
        integrator=make_integrator(config, ts),
        ts=ts,
        config=config,
        input_names=first.input_names,
        output_names=first.output_names,
        input_units=first.input_units,
        output_units=first.output_units,
        past_span=spans(split.train, n_past) if sees_time else None,
    )
    validated = make_windows(split.validation, horizon=config.horizons[-1]) if windows_validate else None
    return Problem(config, split, model, stages, validated)


def make_stages(config: Config, make_windows: Callable[..., WindowSource]) -> tuple[Stage, ...]:
    """Training windows of each horizon, for equal shares of the steps and with about as many samples per step.

    Args:
        config: the horizons, and the batch of the first one.
        make_windows: windows of the training records for a `horizon`.

    Returns:
        The stages; later ones share the samples of the first.
    """
    # Without Adam the windows only show where the encoder looks at.
    horizons = config.horizons if config.max_steps > 0 or config.initial_state == "free" else (2,)
    sources = [make_windows(horizon=horizon) for horizon in horizons]
    first, shared = sources[0], ("u", "y", "measured", "dt", "rows", "lag")
    stages = []
    for i, source in enumerate(sources, 1):
        batch = max(1, round(config.batch * first.horizon / source.horizon))
        same = dataclasses.replace(source, **{name: getattr(first, name) for name in shared})
        stages.append(Stage(same, batch, round(config.max_steps * i / len(sources))))
    return tuple(stages)


def make_result(problem: Problem, run: RunState, curves: FoldCurves | None = None) -> FitResult:
    """What the user gets of a run.

    Args:
        problem: what was trained on what.
        run: where training ended.
        curves: what the folds said, if there were any.

    Returns:
        The result.
    """
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
    finished = f"{counted}{_chosen_by(problem.config)}." if iterations else ""
    limited = describe_limits(problem.config.output_limits, best.output_names, best.output_units)
    return FitResult(
        model=best,
        last_model=last,
        history=run.history if curves is None else _with_pooled(run.history, curves),
        status=run.status,
        message=" ".join(part for part in (_message(problem, run), finished, limited) if part),
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
        report(_update(problem, before, run))
        due = time.monotonic() - saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        if folder is not None and (due or run.status != "running"):
            save_checkpoint(folder, problem, run)
            saved_at = time.monotonic()
    return run


def _finish(
    problem: Problem,
    run: RunState,
    folder: Path | None,
    report: Callable[[ProgressUpdate], None],
    interrupted: threading.Event,
) -> tuple[RunState, FoldCurves | None]:
    """The second-order steps, as many as folds say; one interrupted in them resumes with the first of them."""
    config = problem.config
    curves = _choose_iterations(problem, folder, report, interrupted) if config.folds else None
    if run.finished:
        return run, curves
    if curves is not None:
        run = dataclasses.replace(run, seconds=run.seconds + curves.seconds)
        if curves.chosen == 0:
            return dataclasses.replace(run, status="interrupted" if interrupted.is_set() else "diverged"), None
    most, parts, ahead = config.finish_steps, choices_of_parts(config)[-1], 0
    if curves is not None:
        most, parts, ahead = curves.chosen, curves.parts, rounds(config) * config.finish_steps

    def tell(before: RunState, now: RunState) -> None:
        number = now.step - run.step
        update = _update(problem, before, now)
        if curves is not None:
            update = dataclasses.replace(update, validation=curves.pooled[number - 1], best=min(curves.pooled))
        report(
            dataclasses.replace(
                update,
                step=ahead + now.step,
                max_steps=ahead + run.step + most,
                best_step=ahead + (now.best_step if curves is None else curves.chosen),
                steps_per_second=update.steps_per_second if number > 1 else float("nan"),
                status="running",
                note=f"{config.finish}, iteration {number} of {most}",
            )
        )

    done = finish(problem, run, most=most, parts=parts, report=tell, interrupted=interrupted)
    if folder is not None and done.finished:
        save_checkpoint(folder, problem, done)
    return done, curves


def _choose_iterations(
    problem: Problem, folder: Path | None, report: Callable[[ProgressUpdate], None], interrupted: threading.Event
) -> FoldCurves:
    """The folds, one after the other; those that an interrupted run has on disk are not trained again."""
    config, tau = problem.config, problem.initial_model.state_space.tau

    def make_fold(records: Sequence[Record]) -> Problem:
        bla = approximate(records, config, order=int(config.nx))
        return start_problem(config, tau, Split(tuple(records), ()), bla=bla)

    def tell(at: FoldPoint) -> None:
        report(
            ProgressUpdate(
                step=at.fold * config.finish_steps + at.iteration,
                max_steps=all_steps(config),
                loss=at.trained,
                validation=at.held_out[-1],
                best=min(at.held_out),
                best_step=at.fold * config.finish_steps + int(np.argmin(at.held_out)) + 1,
                recoveries=0,
                steps_per_second=1.0 / max(at.seconds, 1e-9) if at.iteration > 1 else float("nan"),
                status="running",
                note=f"fold {at.fold + 1} of {rounds(config)}, iteration {at.iteration}",
            )
        )

    def keep(done: Sequence[FoldCurve]) -> None:
        if folder is not None:
            save_fold_curves(folder, problem, done)

    known = [] if folder is None else load_fold_curves(folder, problem)
    return choose_iterations(problem, make_fold, known=known, keep=keep, report=tell, interrupted=interrupted)


def all_steps(config: Config) -> int:
    """All steps of a fit, for its progress: those of Adam, of folds that choose iterations, and of the finish.

    Args:
        config: the settings.

    Returns:
        The number, at most.
    """
    last = 0 if config.finish == "none" else config.finish_steps
    return config.max_steps + last * (1 + (rounds(config) if config.max_steps == 0 else 0))


def _train_folds(
    whole: Problem, folder: Path | None, report: Callable[[ProgressUpdate], None], interrupted: threading.Event
) -> tuple[Problem, RunState, FoldCurves]:
    """Train the folds; then the problem on everything, with as many steps as they chose, and where it begins.

    Where the folds did not come to an end, what comes back is the first of them, with the status that says so.
    """
    config, tau, known = whole.config, whole.initial_model.state_space.tau, whole.initial_model.physics
    plant = None if known is None else known.plant
    problems = [start_problem(fold_config(config), tau, split, plant) for split in cut_folds(whole.split.train, config)]
    runs = [_begin(problem, folder, FOLD_NAME.format(k)) for k, problem in enumerate(problems, 1)]
    saved_at = [-SECONDS_BETWEEN_CHECKPOINTS] * len(problems)

    def after(k: int, before: RunState, run: RunState) -> bool:
        report(dataclasses.replace(_update(problems[k], before, run), note=f"fold {k + 1} of {len(problems)}"))
        if folder is not None and time.monotonic() - saved_at[k] >= SECONDS_BETWEEN_CHECKPOINTS:
            save_checkpoint(folder, problems[k], run, FOLD_NAME.format(k + 1))
            saved_at[k] = time.monotonic()
        return interrupted.is_set()

    done, curves = train_folds(problems, runs, patience=config.patience, after=after)
    if folder is not None:
        for k, (problem, run) in enumerate(zip(problems, done, strict=True), 1):
            save_checkpoint(folder, problem, run, FOLD_NAME.format(k))
    if interrupted.is_set() or curves.chosen == 0:
        status = "interrupted" if interrupted.is_set() else "diverged"
        return problems[0], dataclasses.replace(done[0], status=status), curves
    final = dataclasses.replace(whole, last_step=curves.chosen)
    begun = _begin(final, folder)
    spent = begun.seconds if begun.history else sum(run.seconds for run in done)
    return final, dataclasses.replace(begun, seconds=spent), curves


def _update(problem: Problem, before: RunState, run: RunState) -> ProgressUpdate:
    row = run.history[-1] if run.history else None
    return ProgressUpdate(
        step=run.step,
        max_steps=problem.stop,
        loss=row.loss if row else float("nan"),
        validation=row.validation if row else float("nan"),
        best=run.best_score,
        best_step=run.best_step,
        recoveries=run.recoveries,
        steps_per_second=(run.step - before.step) / max(run.seconds - before.seconds, 1e-9),
        status=run.status,
    )


def _message(problem: Problem, run: RunState) -> str:
    config = problem.config
    if config.max_steps == 0:
        return _message_of_finish(config, run)
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


def _message_of_finish(config: Config, run: RunState) -> str:
    if run.status == "diverged":
        return (
            "no simulation of the whole training records stayed finite, so the model is the one that training began "
            "with. Try a larger tau, more substeps, or recipe='windows'."
        )
    if run.status == "interrupted":
        where = f"at iteration {run.step}" if run.step else "before the first iteration on everything"
        return f"stopped {where}; resume to go on, bit for bit as if never stopped."
    return ""


def _chosen_by(config: Config) -> str:
    if config.max_steps > 0:
        return " followed"
    return f", chosen by {config.folds} folds" if config.folds else ""
