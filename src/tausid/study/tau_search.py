"""Estimates of tau that need training: a trained tau, and cross-validation over many fits."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.clocks import median_step
from tausid.data.records import Record, Records, as_records
from tausid.errors import ConfigError, DivergenceError, MissingExtraError, unknown_name
from tausid.linear.tau_estimation import LINEAR_METHODS, TauEstimate, TauTrial, estimate_linear_tau
from tausid.storage import check_writable
from tausid.training import fit
from tausid.training.checkpoint import fingerprint
from tausid.training.processes import usable_cores, use_one_thread
from tausid.training.progress import ProgressUpdate

METHODS = (*LINEAR_METHODS, "trained", "cv")
SEARCHES = ("tpe", "grid")
JOURNAL = "tau_search.log"
# Trials whose score is within this factor of the best one span the spread: the floor of the valley.
VALLEY = 1.1
# Trials that run to their end before hopeless ones are stopped.
TRIALS_BEFORE_PRUNING = 5
# What the sampler is told of a fit that never simulated: far worse than no model at all, whose NRMSE is 1.
LOST = 1e3
# The recipe of the fits, unless another is asked for: the default one starts from a linear model whatever tau is.
RECIPE = "windows"


def estimate_tau(
    records: Records, *, method: str = "bla", nx: int | str = "auto", hold: str = "zero", **options: Any
) -> TauEstimate:
    """Estimate tau by one of four methods.

    Args:
        records: training records, one or several.
        method: `bla` or `spectrum` (from the best linear approximation, in a second), `trained` (a parameter of one
            fit) or `cv` (cross-validation: many fits, scored by free runs over held-out data).
        nx: order of the linear approximation, or number of states of the fits; `auto` for either's default.
        hold: what the inputs do between samples, `zero` or `first`.
        **options: for `trained`, arguments of `fit`, whose recipe is then `windows`; for `cv`, those of `search_tau`.

    Returns:
        The estimate.

    Raises:
        ConfigError: an unknown method, or an option that the method does not take.
        DataError: the records break a rule.
    """
    if method not in METHODS:
        raise ConfigError(unknown_name("method", method, METHODS))
    if method in LINEAR_METHODS:
        if options:
            raise ConfigError(
                f"method {method!r} must have no further options; got {', '.join(options)}. Leave them out, "
                "or use method 'trained' or 'cv'."
            )
        return estimate_linear_tau(records, method=method, nx=nx, hold=hold)
    sizes = {} if nx == "auto" else {"nx": nx}
    settings = {"integration.hold": hold, **options.pop("settings", {})}
    estimator = train_tau if method == "trained" else search_tau
    return estimator(records, **{"seed": 0, **sizes, **options, "settings": settings})


def train_tau(records: Records, *, seed: int, **settings: Any) -> TauEstimate:
    """Train tau together with all weights in one fit, from Ts/tau = 0.1 on or from where `tau` says."""
    result = fit(records, **{"tau": "trained", "seed": seed, "recipe": RECIPE, **settings})
    tau = result.model.state_space.tau
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status == "diverged":
        raise DivergenceError(result.message)
    if not tau.trainable:
        raise ConfigError(f"a trained tau must be trainable; got tau={settings['tau']!r}. Leave it out.")
    path = [float(np.mean(row.tau)) for row in result.history]
    late = path[len(path) // 2 :] or [float(np.mean(result.model.tau))]
    return TauEstimate(
        tau=float(np.mean(result.model.tau)),
        tau_per_state=np.broadcast_to(np.asarray(result.model.tau), (result.recipe.structure.order,)).copy(),
        ts=result.model.ts,
        method="trained",
        description=(
            f"trained with all weights from Ts/tau = {result.model.ts / float(np.mean(tau.start)):.3g} on "
            f"({result.status} after {result.steps} steps, best at {result.best_step}); spread: its range over the "
            "last half of the training"
        ),
        spread=(min(late), max(late)),
    )


def search_tau(
    records: Records,
    *,
    seed: int,
    out: str | os.PathLike[str] | None = None,
    search: str = "tpe",
    trials: int = 20,
    bounds: tuple[float, float] = (1e-3, 10.0),
    workers: int | None = None,
    report: Callable[[TauTrial], None] | None = None,
    **settings: Any,
) -> TauEstimate:
    """Cross-validate tau: many fits, each scored by its free run over held-out training data.

    Every finished fit is in a journal in `out`; a search that was stopped goes on from there. Test data play no part.
    """
    several = as_records(records)
    if out is None:
        raise ConfigError("a search for tau must have a folder for its journal; got none. Give out='runs/tau'.")
    _check_search(search, trials, bounds, settings)
    journal = check_writable(out) / JOURNAL
    study = _open_study(journal, search)
    same = {**_flat(settings), "seed": seed, "bounds": bounds, "search": search, "data": fingerprint(several)}
    _check_same_search(study, same, journal)
    # Not the same seed again after a stop: the sampler would repeat what it has tried.
    study.sampler = _sampler(seed + len(study.trials))
    _requeue_broken_trials(study)
    if search == "grid":
        for value in np.geomspace(*bounds, trials).tolist():
            study.enqueue_trial({"ts_over_tau": value}, skip_if_exists=True)
    count = min(workers or usable_cores(), trials)
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=use_one_thread) as pool:
        start = partial(_try_tau, journal, search, records=several, settings={**settings, "seed": seed})
        _run_trials(study, partial(pool.submit, start), count, trials, bounds, report or _print_trial)
    return _conclude(_finished_trials(study), median_step(several), search)


def _run_trials(
    study: Any,
    tries: Callable[[int, float], Future[TauTrial]],
    count: int,
    trials: int,
    bounds: tuple[float, float],
    report: Callable[[TauTrial], None],
) -> None:
    """Keep all workers busy until there are enough trials; only this process changes what a trial's outcome is."""
    running: dict[Future[TauTrial], Any] = {}
    while True:
        while len(running) < count and len(_finished_trials(study)) + len(running) < trials:
            trial = study.ask()
            ts_over_tau = trial.suggest_float("ts_over_tau", *bounds, log=True)
            running[tries(trial._trial_id, ts_over_tau)] = trial
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            trial, outcome = running.pop(future), future.result()
            trial.set_user_attr("outcome", [outcome.score if math.isfinite(outcome.score) else None, outcome.status])
            study.tell(trial, outcome.score if math.isfinite(outcome.score) else LOST)
            report(outcome)


def _try_tau(
    journal: Path,
    search: str,
    trial_id: int,
    ts_over_tau: float,
    *,
    records: Sequence[Record],
    settings: dict[str, Any],
) -> TauTrial:
    """One fit with this tau, which the study's pruner may stop early; runs in a worker."""
    import optuna

    trial = optuna.trial.Trial(_open_study(journal, search), trial_id)
    scores: list[float] = []

    def watch(update: ProgressUpdate) -> None:
        scores.append(update.best if math.isfinite(update.best) else LOST)
        if update.status == "running":
            trial.report(scores[-1], update.step)
            if trial.should_prune():
                raise optuna.TrialPruned

    try:
        given = {"tau": median_step(records) / ts_over_tau, "recipe": RECIPE, **settings, "progress": watch}
        result = fit(records, **given)
    except optuna.TrialPruned:
        return TauTrial(ts_over_tau, scores[-1], "stopped early")
    best = min((row.validation for row in result.history if row.validation == row.validation), default=math.inf)
    return TauTrial(ts_over_tau, best, result.status)


def _finished_trials(study: Any) -> list[TauTrial]:
    found = [
        TauTrial(
            trial.params["ts_over_tau"],
            math.inf if trial.user_attrs["outcome"][0] is None else trial.user_attrs["outcome"][0],
            trial.user_attrs["outcome"][1],
        )
        for trial in study.get_trials(deepcopy=False)
        if trial.state.name == "COMPLETE"
    ]
    return sorted(found, key=lambda trial: trial.ts_over_tau)


def _requeue_broken_trials(study: Any) -> None:
    """Trials that a stopped search left unfinished are tried again, with the same tau."""
    import optuna

    for trial in study.get_trials(deepcopy=False):
        if trial.state == optuna.trial.TrialState.RUNNING:
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            if trial.params:
                study.enqueue_trial(trial.params)


def _open_study(journal: Path, search: str) -> Any:
    """The study in a journal, created where there is none; only `tpe` stops hopeless fits early."""
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise MissingExtraError(
            'cross-validation of tau needs optuna, which is missing. Install it with pip install "tausid[search]".'
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    backend = JournalFileBackend(str(journal))
    median = optuna.pruners.MedianPruner(n_startup_trials=TRIALS_BEFORE_PRUNING)
    return optuna.create_study(
        study_name="tau",
        storage=optuna.storages.JournalStorage(backend),
        pruner=median if search == "tpe" else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


def _sampler(seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(seed=seed)


def _check_same_search(study: Any, settings: dict[str, Any], journal: Path) -> None:
    asked = {name: repr(value) for name, value in sorted(settings.items())}
    held = study.user_attrs.get("settings")
    if held is None:
        study.set_user_attr("settings", asked)
        return
    for name in sorted({*held, *asked}):
        if held.get(name) != asked.get(name):
            raise ConfigError(
                f"a resumed search must have the settings and data it began with; `{name}` was {held.get(name)} and "
                f"is now {asked.get(name)} ({journal}). Use the same, or another folder."
            )


def _conclude(trials: Sequence[TauTrial], ts: float, search: str) -> TauEstimate:
    best = min(trials, key=lambda trial: trial.score)
    if not math.isfinite(best.score):
        raise DivergenceError(
            f"a search for tau must find a model that simulates; none of {len(trials)} trials did. "
            "Widen the bounds, take more steps, or look at the data."
        )
    valley = [ts / trial.ts_over_tau for trial in trials if trial.score <= VALLEY * best.score]
    tau = ts / best.ts_over_tau
    return TauEstimate(
        tau=tau,
        tau_per_state=np.array([tau]),
        ts=ts,
        method="cv",
        description=(
            f"best of {len(trials)} fits ({search} search) by the free run over held-out data, normalized RMSE "
            f"{best.score:.4g}; spread: the fits within ten percent of it"
        ),
        spread=(min(valley), max(valley)),
        trials=tuple(trials),
    )


def _check_search(search: str, trials: int, bounds: tuple[float, float], settings: dict[str, Any]) -> None:
    if search not in SEARCHES:
        raise ConfigError(unknown_name("search", search, SEARCHES))
    if trials < 1:
        raise ConfigError(f"`trials` must be at least 1; got {trials}. Twenty are a good start.")
    low, high = bounds
    if not 0 < low < high < math.inf:
        raise ConfigError(f"`bounds` must be two rising positive values of Ts/tau; got {bounds}. Try (1e-3, 10).")
    if _flat(settings).get("holdout", "auto") in ("none", None):
        raise ConfigError("a search for tau must hold data out to score with; got holdout=none. Leave it out.")
    for name in ("tau", "test", "protocol", "progress"):
        if name in settings:
            raise ConfigError(f"a search for tau decides `{name}` itself; got {settings[name]!r}. Leave it out.")


def _flat(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a fit, and the settings among them, by their keys."""
    return {key: value for key, value in arguments.items() if key != "settings"} | arguments.get("settings", {})


def _print_trial(trial: TauTrial) -> None:
    line = f"Ts/tau {trial.ts_over_tau:.4g}: held-out NRMSE {trial.score:.4g}, {trial.status}"
    print(line, file=sys.stderr, flush=True)
