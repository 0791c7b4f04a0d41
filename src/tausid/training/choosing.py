"""What held-out data say: how many iterations of second order, how many states, which network, of which parts.

A trial trains one choice without some outputs and simulates them: stretches of the training records, by folds, or
validation records. Choices are tried one step away from the best so far, in a fixed order.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, PyTree

from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.errors import DataError
from tausid.model.config import AUTO, Config
from tausid.model.free_run import SAMPLES_PER_STATE
from tausid.model.model import Model
from tausid.model.restore import with_limits
from tausid.training.finishing import finish
from tausid.training.folds import geometric_mean
from tausid.training.loop import Problem, RunState, start_run, validation_score
from tausid.training.protocols import Split
from tausid.training.result import FoldCurve, FoldCurves

# What `auto` begins with, and what is tried instead.
FIRST = {"activation": "leaky_relu", "network": "mlp", "finish_parts": "f"}
OTHERS = {"activation": "tanh", "network": "polynomial", "finish_parts": "both"}
KINDS = ("activation", "network")  # of networks
# Without held-out data nothing speaks for less.
UNDECIDED = {**FIRST, "finish_parts": "both"}
# A choice is better where its error is lower by this factor; otherwise what was tried first stays.
BETTER = 0.98
# A nonlinear g must be better by this one: states can mostly be chosen such that outputs are linear in them, and what g
# bends at once, without any dynamics, is the first to be wrong for inputs of another kind.
BENT_G = 0.5
# Errors below this share of the deviation are as good as none: what is left to choose by is rounding.
NEGLIGIBLE = 1e-4
# A choice is given up where folds so far leave it behind by this factor: the best one, or what g must reach.
HOPELESS = 1.2
# Inputs this much larger than the held-out ones must not make a model run away, as polynomials may out of range.
LARGER_INPUTS = 1.5
# What trials say that were not done, or given up.
NOTHING = FoldCurves((), (), (np.inf,), 0)


@dataclass(frozen=True)
class TrialPoint:
    """Where a trial is.

    Args:
        label: the choice that is tried, and by which fold.
        trials: how many trials were done before.
        planned: how many trials there are at least, this one included.
        run: its state after the last iteration.
    """

    label: str
    trials: int
    planned: int
    run: RunState


def close_settings(config: Config, *, held_out: bool) -> Config:
    """The settings that the first trial has, and every fit without held-out data: `auto` but for `nx` is gone."""
    values = FIRST if held_out and config.max_steps == 0 else UNDECIDED
    closed: dict[str, Any] = {name: value for name, value in values.items() if is_open(config, name)}
    return dataclasses.replace(config, **closed)


def is_open(config: Config, name: str) -> bool:
    """Whether a setting is left to the data."""
    return getattr(config, name) == AUTO


class Trials:
    """Trials of choices on the same held-out data; those that an interrupted run has on disk are not repeated.

    Args:
        splits: records by role, one per trial of a choice.
        make: the problem of a choice on such records.
        known: what trials said before an interruption, by their labels.
        keep: called with what all trials said so far after each of them.
        report: called after each iteration.
        interrupted: ends the trials when it is set.
        planned: how many choices there are at least.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        make: Callable[[Config, Split], Problem],
        *,
        known: Mapping[str, FoldCurve],
        keep: Callable[[Mapping[str, FoldCurve]], None],
        report: Callable[[TrialPoint], None],
        interrupted: threading.Event,
        planned: int,
    ) -> None:
        self.splits = splits
        self.make = make
        self.curves = dict(known)
        self.keep = keep
        self.report = report
        self.interrupted = interrupted
        self.planned = planned * len(splits)
        self.done = 0
        self.seconds = 0.0  # spent on all trials, also before an interruption

    @property
    def most_states(self) -> int:
        """So many states that all held-out data are long enough for their estimate."""
        return min(len(record) for split in self.splits for record in split.validation) // (2 * SAMPLES_PER_STATE)

    def of(self, config: Config, rival: Config | None = None, enough: float = BETTER) -> FoldCurves:
        """What all trials of one choice say together."""
        curves: list[FoldCurve] = []
        hopeless = HOPELESS * enough / BETTER
        for k, split in enumerate(self.splits):
            label = self._label(config, k)
            if label not in self.curves:
                try:
                    curve = self._train(config, split, label, must_endure=rival is not None)
                except DataError:
                    if rival is None:
                        raise
                    return NOTHING
                if self.interrupted.is_set():
                    return NOTHING
                self.curves[label] = curve
                self.keep(self.curves)
            self.done += 1
            self.seconds += self.curves[label].seconds
            curves.append(self.curves[label])
            if rival is not None and _lowest(curves, config) > hopeless * _lowest(self._first(rival, k + 1), rival):
                return NOTHING
        return pool_iterations(curves, config.finish_steps)

    def _first(self, config: Config, count: int) -> list[FoldCurve]:
        """What the first trials of a choice said."""
        return [self.curves[self._label(config, k)] for k in range(count)]

    def _label(self, config: Config, k: int) -> str:
        return describe(config) + (f": fold {k + 1} of {len(self.splits)}" if config.folds else "")

    def weights(self, config: Config, k: int) -> PyTree[Array]:
        """The best weights of one trial of a choice; it is done again."""
        return self._run(config, self.splits[k], self._label(config, k))[1].best_weights

    def _train(self, config: Config, split: Split, label: str, *, must_endure: bool) -> FoldCurve:
        began = time.perf_counter()
        problem, run = self._run(config, split, label)
        scored = sum(int((~np.isnan(record.y)).sum()) for record in split.validation)
        errors = (_start_error(problem), *(row.validation for row in run.history))
        if must_endure and not endures(problem.model_with(run.best_weights), split.validation):
            errors = (np.inf,) * len(errors)
        return FoldCurve(errors, scored, time.perf_counter() - began)

    def _run(self, config: Config, split: Split, label: str) -> tuple[Problem, RunState]:
        problem = self._problem(dataclasses.replace(config, finish_parts=UNDECIDED["finish_parts"]), split, label)
        planned = max(self.planned, self.done + 1)

        def tell(before: RunState, now: RunState) -> None:
            self.report(TrialPoint(label, self.done, planned, now))

        run = finish(
            problem,
            start_run(problem),
            most=config.finish_steps,
            parts=config.finish_parts,
            report=tell,
            interrupted=self.interrupted,
        )
        return problem, run

    def _problem(self, config: Config, split: Split, label: str) -> Problem:
        """The start of a choice, the same whatever parts are trained."""
        try:
            return self.make(config, split)
        except DataError as error:
            if not config.folds:
                raise
            raise DataError(
                f"each fold must be able to train without its stretch; {label} is not: {error} Use fewer folds, or "
                "folds=0 with validation records."
            ) from None


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen.

    Args:
        config: the settings with nothing left open.
        curves: what the folds said of it; None where validation records decide when to stop.
        trials: what tried choices; None where there was no choice.
    """

    config: Config
    curves: FoldCurves | None = None
    trials: Trials | None = None

    @property
    def seconds(self) -> float:
        """Time spent on all trials."""
        return 0.0 if self.trials is None else self.trials.seconds

    @property
    def tried(self) -> int:
        """Number of trials."""
        return 0 if self.trials is None else self.trials.done


def choose(asked: Config, start: Config, trials: Trials) -> Choice:
    """The best choice of what is open, and how many iterations folds allow it."""
    best, curves, tried = start, trials.of(start), [start]
    for candidates in _ladders(asked, start, trials.most_states):
        for change in candidates:
            step = change(best)
            fewer_helped = best.order < start.order
            good_enough = curves.lowest < NEGLIGIBLE
            if trials.interrupted.is_set() or good_enough or (fewer_helped and step.order > start.order):
                break
            if step in tried:  # one state less than one
                break
            tried.append(step)
            enough = BETTER if step.finish_parts == best.finish_parts else BENT_G
            found = trials.of(step, rival=best, enough=enough)
            if not found.lowest < enough * curves.lowest:
                break
            best, curves = step, found
    return Choice(best, curves if asked.folds else None, trials)


def endures(model: Model, records: Sequence[Record]) -> bool:
    """Whether simulations stay finite with inputs larger than those that were measured."""
    mean = model.scaling.u_mean
    larger = [dataclasses.replace(record, u=mean + LARGER_INPUTS * (record.u - mean)) for record in records]
    return all(model.simulate(record, throw=False).status == "ok" for record in larger)


def count_choices(asked: Config, start: Config) -> int:
    """How many choices there are to try, or one or two more or fewer, as they turn out."""
    states = is_open(asked, "nx")
    others = sum((1 + (states and name in KINDS)) * is_open(asked, name) for name in OTHERS)
    return 1 + start.order * states + others


def _ladders(asked: Config, start: Config, most_states: int) -> Iterator[Iterator[Callable[[Config], Config]]]:
    """Changes to be tried one after the other, each series as long as it gets better: fewer states, more, and so on.

    A linear model takes additional states for what is nonlinear, so that much fewer may do: all of them are tried. A
    kind of network that suits the plant may do with one state less than the one that the states were chosen with.
    """

    def change(settings: dict[str, Any], fewer: int = 0) -> Callable[[Config], Config]:
        return lambda best: dataclasses.replace(best, **{"nx": max(1, best.order - fewer), **settings})

    if is_open(asked, "nx"):
        yield from (iter([change({"nx": n})]) for n in range(1, start.order))
        yield (change({"nx": n}) for n in range(start.order + 1, min(2 * start.order + 1, most_states) + 1))
    for name, value in OTHERS.items():
        if is_open(asked, name):
            yield iter([change({name: value})])
            if is_open(asked, "nx") and name in KINDS:
                yield iter([change({name: value}, fewer=1)])


def describe(config: Config) -> str:
    """A choice in words."""
    network = config.activation if config.network == "mlp" else config.network
    parts = "f" if config.finish_parts == "f" else "f and g"
    return f"{config.nx} state{'s' * (config.order > 1)}, {network}, {parts} nonlinear"


def _lowest(curves: Sequence[FoldCurve], config: Config) -> float:
    return pool_iterations(curves, config.finish_steps).lowest


def _start_error(problem: Problem) -> float:
    """The held-out error of the start, as the fit on everything has it; infinite where known equations stand alone, of
    which nothing is trained but what finds their initial states."""
    model = problem.initial_model
    if model.physics is not None and problem.config.correction == "none":
        return np.inf
    if problem.linear_order is not None:  # a linear approximation is in units of the records that it was found from
        own = Scaling.from_records(problem.split.train)
        model = dataclasses.replace(model, scaling=own, state_space=with_limits(model.state_space, model.config, own))
    return validation_score(model, problem.split.validation, problem.initial_model.scaling.y_std)


def pool_iterations(curves: Sequence[FoldCurve], most: int) -> FoldCurves:
    """Curves together; one that has ended stays at its last error."""
    scores = np.array([(*curve.errors, *curve.errors[-1:] * (most + 1 - len(curve.errors))) for curve in curves])
    scores = np.where(np.isfinite(scores), scores, np.inf)
    weights = [curve.scored for curve in curves]
    pooled = geometric_mean(scores, weights)
    chosen = int(np.argmin(geometric_mean(np.maximum(scores, NEGLIGIBLE), weights)))  # the first of those as good
    return FoldCurves(tuple(range(most + 1)), tuple(map(tuple, scores.tolist())), tuple(pooled.tolist()), chosen)
