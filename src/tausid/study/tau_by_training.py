"""Estimates of tau that need training: a trained tau, and cross-validation as a study over Ts/tau."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tausid.checks import check_choice, check_whole
from tausid.data.clocks import median_step
from tausid.data.records import Records, as_records
from tausid.errors import ConfigError, DivergenceError, unknown_name
from tausid.linear.tau_estimation import LINEAR_METHODS, TauEstimate, TauTrial, estimate_linear_tau
from tausid.results.study_results import StudyResults, StudyStatus
from tausid.study.coordinator import StudyUpdate, run_study
from tausid.study.executors import open_workers
from tausid.study.spec import StudySpec, axis_values, recipe_of
from tausid.study.study_data import RecordSource
from tausid.training import fit
from tausid.training.run_state import Status

METHODS = (*LINEAR_METHODS, "trained", "cv")
SEARCHES = ("refine", "grid")
# Trials whose score is within this factor of the best one span the spread: the floor of the valley.
VALLEY = 1.1
# A search spends this share of its trials on a log grid, and the others between its best values, so many at a time.
GRID_SHARE, LEAST_GRID, PER_ROUND = 0.5, 3, 4
# The recipe of the fits, unless another is asked for: the default one starts from a linear model whatever tau is.
RECIPE = "windows"
# What a cross-validation takes beside what its fits do: recipe, nx, physics and settings.
OPTIONS = ("seed", "out", "search", "trials", "bounds", "workers", "report", "recipe", "nx", "physics", "settings")


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
        **options: for `trained`, arguments of `fit`, whose recipe is then `windows`; for `cv`, those of
            `cross_validate_tau`.

    Raises:
        ConfigError: an unknown method, or an option that the method does not take.
        DataError: the records break a rule.
    """
    check_choice("method", method, METHODS)
    if method in LINEAR_METHODS:
        if options:
            raise ConfigError(
                f"method {method!r} must have no further options; got {', '.join(options)}. Leave them out, "
                "or use method 'trained' or 'cv'."
            )
        return estimate_linear_tau(records, method=method, nx=nx, hold=hold)
    sizes = {} if nx == "auto" else {"nx": nx}
    settings = {"integration.hold": hold, **options.pop("settings", {})}
    if method == "trained":
        return train_tau(records, **{"seed": 0, **sizes, **options, "settings": settings})
    for name in options:
        if name not in OPTIONS:
            raise ConfigError(unknown_name("option of a cross-validation of tau", name, OPTIONS))
    return cross_validate_tau(records, **{**sizes, **options, "settings": settings})


def train_tau(records: Records, *, seed: int, **settings: Any) -> TauEstimate:
    """Train tau together with all weights in one fit, from Ts/tau = 0.1 on or from where `tau` says."""
    result = fit(records, **{"tau": "trained", "seed": seed, "recipe": RECIPE, **settings})
    tau = result.model.state_space.tau
    if result.status == Status.INTERRUPTED:
        raise KeyboardInterrupt
    if result.status == Status.DIVERGED:
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


def cross_validate_tau(
    records: Records,
    *,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    search: str = "refine",
    trials: int = 20,
    bounds: tuple[float, float] = (1e-3, 10.0),
    workers: int | None = None,
    report: Callable[[TauTrial], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    **choices: Any,
) -> TauEstimate:
    """Cross-validate tau: a study over Ts/tau in `out`, each fit scored by its free run over held-out data.

    `grid` tries a log grid over the bounds. `refine` spends half of the trials on a coarser one and the others between
    its best values. A cross-validation that was stopped goes on from its folder. Test data play no part.
    """
    several = as_records(records)
    if out is None:
        raise ConfigError("a cross-validation of tau must have a folder for its study; got none. Give out='runs/tau'.")
    _check_search(search, trials, bounds)
    fits = {"recipe": RECIPE, **choices, **(settings or {}), "seed": seed}
    if recipe_of(fits, several).holdout is None:
        raise ConfigError("a cross-validation of tau must hold data out; got holdout=none. Leave it out.")
    results = StudyResults("tau", ())
    with open_workers(workers) as (pool, slots):
        while values := _next_values(_trials(results), search, trials, bounds):
            spec = StudySpec({"records": RecordSource(several)}, fits, {"ts_over_tau": values}, {})
            say = _reporter(report or _print_trial)
            results = run_study(spec, out=out, executor=pool, workers=slots(), resume=True, report=say)
    return _conclude(_trials(results), median_step(several), search, failure=_first_failure(results))


def _next_values(done: Sequence[TauTrial], search: str, trials: int, bounds: tuple[float, float]) -> tuple[float, ...]:
    """The values of Ts/tau to try next: a log grid first, then the middles of intervals with good ends."""
    if not done:
        count = trials if search == "grid" else min(trials, max(LEAST_GRID, math.ceil(GRID_SHARE * trials)))
        return axis_values("ts_over_tau", {"geomspace": [*bounds, count]})
    if search == "grid" or len(done) >= trials or not any(math.isfinite(trial.score) for trial in done):
        return ()
    pairs = sorted(itertools.pairwise(done), key=lambda pair: sum(trial.score for trial in pair))
    count = min(PER_ROUND, trials - len(done))
    middles = (math.sqrt(low.ts_over_tau * high.ts_over_tau) for low, high in pairs[:count])
    return tuple(float(f"{middle:.15g}") for middle in middles)


def _trials(results: StudyResults) -> list[TauTrial]:
    """The finished fits, by rising Ts/tau."""
    rows = sorted(results.rows, key=lambda row: float(row["ts_over_tau"]))
    return [_trial(row) for row in rows]


def _trial(row: Mapping[str, Any]) -> TauTrial:
    score = row.get("validation_nrmse")
    return TauTrial(float(row["ts_over_tau"]), math.inf if score is None else float(score), str(row["status"]))


def _reporter(report: Callable[[TauTrial], None]) -> Callable[[StudyUpdate], None]:
    def say(update: StudyUpdate) -> None:
        if update.just_finished is not None:
            report(_trial(update.just_finished))

    return say


def _first_failure(results: StudyResults) -> str:
    return next(
        (f" The first error: {row['message']}" for row in results.rows if row["status"] == StudyStatus.FAILED), ""
    )


def _conclude(trials: Sequence[TauTrial], ts: float, search: str, *, failure: str = "") -> TauEstimate:
    best = min(trials, key=lambda trial: trial.score)
    if not math.isfinite(best.score):
        raise DivergenceError(
            f"a cross-validation of tau must find a model that simulates; none of {len(trials)} fits did.{failure} "
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
            f"best of {len(trials)} fits (search {search}) by the free run over held-out data, normalized RMSE "
            f"{best.score:.4g}; spread: the fits within ten percent of it"
        ),
        spread=(min(valley), max(valley)),
        trials=tuple(trials),
    )


def _check_search(search: str, trials: int, bounds: tuple[float, float]) -> None:
    check_choice("search", search, SEARCHES)
    check_whole("trials", trials, 1)
    low, high = bounds
    if not 0 < low < high < math.inf:
        raise ConfigError(f"`bounds` must be two rising positive values of Ts/tau; got {bounds}. Try (1e-3, 10).")


def _print_trial(trial: TauTrial) -> None:
    line = f"Ts/tau {trial.ts_over_tau:.4g}: held-out NRMSE {trial.score:.4g}, {trial.status}"
    print(line, file=sys.stderr, flush=True)
