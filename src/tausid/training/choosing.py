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

from tausid.config import AUTO, Config
from tausid.errors import ConfigError, DataError
from tausid.free_run import SAMPLES_PER_STATE, initial_samples
from tausid.records import Record
from tausid.scaling import Scaling
from tausid.simulation import Model, with_limits
from tausid.training.finishing import finish
from tausid.training.folds import stretch
from tausid.training.loop import Problem, RunState, start_run, validation_score
from tausid.training.protocols import Split
from tausid.training.result import FoldCurve, FoldCurves

# What `auto` begins with, and what is tried instead.
FIRST = {"activation": "leaky_relu", "network": "mlp", "finish_parts": "f"}
OTHERS = {"activation": "tanh", "network": "polynomial", "finish_parts": "both"}
# Without held-out data nothing speaks for less.
UNDECIDED = {**FIRST, "finish_parts": "both"}
# A choice is better where its error is lower by this factor; otherwise what was tried first stays.
BETTER = 0.98
# Errors below this share of the deviation are as good as none: what is left to choose by is rounding.
NEGLIGIBLE = 1e-4
# A choice is given up where folds so far leave it behind the best one by this factor.
HOPELESS = 1.2
# Inputs this much larger than the held-out ones must not make a model run away, as polynomials may out of range.
LARGER_INPUTS = 1.5
# Training samples that a choice is tried on where validation records decide.
TRIED_SAMPLES = 4096
# An input stands still where its variance is below this share of that in the whole record.
STILL = 0.01


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


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen.

    Args:
        config: the settings with nothing left open.
        curves: what the folds said of it; None where validation records decide when to stop.
        seconds: time spent on all trials.
        trials: number of these.
    """

    config: Config
    curves: FoldCurves | None = None
    seconds: float = 0.0
    trials: int = 0


def close_settings(config: Config, *, held_out: bool) -> Config:
    """The settings that the first trial has, and every fit without held-out data: `auto` but for `nx` is gone.

    Args:
        config: the settings.
        held_out: whether some data are held out.

    Returns:
        The settings.
    """
    values = FIRST if held_out and config.max_steps == 0 else UNDECIDED
    closed: dict[str, Any] = {name: value for name, value in values.items() if is_open(config, name)}
    return dataclasses.replace(config, **closed)


def is_open(config: Config, name: str) -> bool:
    """Whether a setting is left to the data.

    Args:
        config: the settings.
        name: the setting's name.

    Returns:
        True where it is `auto`.
    """
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

    @property
    def most_states(self) -> int:
        """So many states that all held-out data are long enough for their estimate."""
        return min(len(record) for split in self.splits for record in split.validation) // (2 * SAMPLES_PER_STATE)

    def of(self, config: Config, rival: Config | None = None) -> FoldCurves:
        """What all trials of one choice say together.

        Args:
            config: the choice.
            rival: the best choice so far, if there is one: the first folds may be enough to see that it stays so.

        Returns:
            The curves; all errors are infinite where no simulation stayed finite, where the choice was given up or
            the records cannot carry it, and after an interruption.

        Raises:
            DataError: the records cannot carry the choice, and there is no other yet.
        """
        curves: list[FoldCurve] = []
        for k, split in enumerate(self.splits):
            label = self._label(config, k)
            if label not in self.curves:
                try:
                    curve = self._train(config, split, label, must_endure=rival is not None)
                except DataError:
                    if rival is None:
                        raise
                    return _nothing(curves)
                if self.interrupted.is_set():
                    return _nothing(curves)
                self.curves[label] = curve
                self.keep(self.curves)
            self.done += 1
            curves.append(self.curves[label])
            if rival is not None and _lowest(curves, config) > HOPELESS * _lowest(self._first(rival, k + 1), rival):
                return _nothing(curves)
        return pool_iterations(curves, config.finish_steps)

    def _first(self, config: Config, count: int) -> list[FoldCurve]:
        """What the first trials of a choice said."""
        return [self.curves[self._label(config, k)] for k in range(count)]

    def _label(self, config: Config, k: int) -> str:
        return describe(config) + (f": fold {k + 1} of {len(self.splits)}" if config.folds else "")

    def _train(self, config: Config, split: Split, label: str, *, must_endure: bool) -> FoldCurve:
        began = time.perf_counter()
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
        scored = sum(int((~np.isnan(record.y)).sum()) for record in split.validation)
        errors = (_start_error(problem), *(row.validation for row in run.history))
        if must_endure and not endures(problem.model_with(run.best_weights), split.validation):
            errors = (np.inf,) * len(errors)
        return FoldCurve(errors, scored, time.perf_counter() - began)

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


def choose(asked: Config, start: Config, trials: Trials) -> Choice:
    """The best choice of what is open, and how many iterations folds allow it.

    Args:
        asked: the settings, some of them `auto`.
        start: the same with the first choice in place of these.
        trials: what tries choices.

    Returns:
        The choice; after an interruption the best so far.
    """
    best, curves = start, trials.of(start)
    spent = curves.seconds
    for candidates in _ladders(asked, start, trials.most_states):
        for change in candidates:
            step = dataclasses.replace(best, **change)
            fewer_helped = best.order < start.order
            good_enough = curves.lowest < NEGLIGIBLE
            if trials.interrupted.is_set() or good_enough or (fewer_helped and step.order > start.order):
                break
            found = trials.of(step, rival=best)
            spent += found.seconds
            if not found.lowest < BETTER * curves.lowest:
                break
            best, curves = step, found
    said = dataclasses.replace(curves, seconds=spent, trials=trials.done) if asked.folds else None
    return Choice(best, said, spent, trials.done)


def endures(model: Model, records: Sequence[Record]) -> bool:
    """Whether simulations stay finite with inputs larger than those that were measured.

    Args:
        model: the model.
        records: the records whose inputs are taken, `LARGER_INPUTS` times as far from their mean in training.

    Returns:
        False where one of them runs away.
    """
    mean = model.scaling.u_mean
    larger = [dataclasses.replace(record, u=mean + LARGER_INPUTS * (record.u - mean)) for record in records]
    return all(model.simulate(record, throw=False).status == "ok" for record in larger)


def count_choices(asked: Config, start: Config) -> int:
    """How many choices there are to try, or one or two more or fewer, as they turn out.

    Args:
        asked: the settings, some of them `auto`.
        start: the same with the first choice in place of these.

    Returns:
        One, and one more for each alternative.
    """
    return 1 + start.order * is_open(asked, "nx") + sum(is_open(asked, name) for name in OTHERS)


def _ladders(asked: Config, start: Config, most_states: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Changes to be tried one after the other, each series as long as it gets better: fewer states, more, and so on.

    A linear model takes additional states for what is nonlinear, so that much fewer may do: all of them are tried.
    """
    if is_open(asked, "nx"):
        yield from (iter([{"nx": n}]) for n in range(1, start.order))
        yield ({"nx": n} for n in range(start.order + 1, min(2 * start.order + 1, most_states) + 1))
    for name, value in OTHERS.items():
        if is_open(asked, name):
            yield iter([{name: value}])


def describe(config: Config) -> str:
    """A choice in words.

    Args:
        config: the settings.

    Returns:
        States, network and parts.
    """
    network = config.activation if config.network == "mlp" else config.network
    parts = "f" if config.finish_parts == "f" else "f and g"
    return f"{config.nx} state{'s' * (config.order > 1)}, {network}, {parts} nonlinear"


def hold_out(split: Split, config: Config) -> tuple[Split, ...]:
    """What trials are trained on and scored on.

    Args:
        split: records by role.
        config: number of folds.

    Returns:
        One split per fold; one with fewer training samples where there are validation records, of a stretch in which
        all inputs move; none without either.

    Raises:
        ConfigError: no fold holds out any output that can be scored.
    """
    if config.folds:
        splits = [_fold(split.train, k, config) for k in range(config.folds)]
        if not any(fold.validation for fold in splits):
            raise ConfigError(
                f"`folds` must hold out measured outputs; none of {config.folds} folds does, with "
                f"{initial_samples(config)} samples for an initial state and more to score. Use fewer folds, folds=0, "
                "or longer records."
            )
        return tuple(fold for fold in splits if fold.validation)
    if not split.validation:
        return ()
    share = min(1.0, TRIED_SAMPLES / sum(len(record) for record in split.train))
    return (Split(tuple(_lively(r, max(2, round(share * len(r)))) for r in split.train), split.validation),)


def _lively(record: Record, samples: int) -> Record:
    """The first samples of a record; where an input stands still in them, those in which the stillest one moves most;
    the whole record where it stands still there, too."""
    moving = record.u.std(axis=0) > 0
    u = (record.u[:, moving] - record.u[:, moving].mean(axis=0)) / record.u[:, moving].std(axis=0)
    if not moving.any() or u[:samples].var(axis=0).min() >= STILL:
        return record.part(0, samples)
    sums, squares = (np.cumsum(np.pad(v, ((1, 0), (0, 0))), axis=0) for v in (u, u**2))
    mean, power = ((s[samples:] - s[:-samples]) / samples for s in (sums, squares))
    variances = (power - mean**2).min(axis=1)
    start = int(np.argmax(variances))
    return record.part(start, start + samples) if variances[start] >= STILL else record


def _fold(records: Sequence[Record], k: int, config: Config) -> Split:
    """All records without the outputs of their k-th stretch, and these stretches, where they can be scored."""
    train, held_out, initial = [], [], initial_samples(config)
    for record in records:
        start, stop = stretch(len(record), k, config.folds, initial)
        measured = ~np.isnan(record.y)
        begins, scored = measured[start : start + initial].any(), measured[start + initial : stop]
        left = np.delete(measured, slice(start, stop), axis=0)
        if begins and len(scored) >= 2 and scored.any(axis=0).all() and left.any(axis=0).all():
            held_out.append(record.part(start, stop))
            train.append(without(record, start, stop))
        else:
            train.append(record)
    return Split(tuple(train), tuple(held_out))


def without(record: Record, start: int, stop: int) -> Record:
    """The record without some outputs; its inputs stay, so that it is simulated all the same.

    Args:
        record: the record.
        start: first sample left out.
        stop: first sample after these.

    Returns:
        The record; NaN where outputs are left out.
    """
    y = np.array(record.y, float)
    y[start:stop] = np.nan
    return dataclasses.replace(record, y=y)


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


def _nothing(curves: Sequence[FoldCurve]) -> FoldCurves:
    return FoldCurves((), (), (np.inf,), 0, sum(curve.seconds for curve in curves))


def pool_iterations(curves: Sequence[FoldCurve], most: int) -> FoldCurves:
    """Curves together; one that has ended stays at its last error.

    Args:
        curves: one per trial.
        most: most iterations.

    Returns:
        The curves, from the start on; `chosen` is 0 where no pooled error is finite.
    """
    scores = np.array([(*curve.errors, *curve.errors[-1:] * (most + 1 - len(curve.errors))) for curve in curves])
    scores = np.where(np.isfinite(scores), scores, np.inf)
    pooled = np.sqrt(np.average(scores**2, axis=0, weights=[curve.scored for curve in curves]))
    chosen = int(np.argmin(np.maximum(pooled, NEGLIGIBLE)))  # the first of those that are as good
    spent = sum(curve.seconds for curve in curves)
    return FoldCurves(tuple(range(most + 1)), tuple(map(tuple, scores.tolist())), tuple(pooled.tolist()), chosen, spent)
