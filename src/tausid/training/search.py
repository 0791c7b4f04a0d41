"""The search for a model: candidates on held-out data, final fits of the best ones, and the consensus among them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.model.model import Model
from tausid.training.candidates import (
    KINDS,
    first_candidates,
    has_one_start,
    is_linear,
    is_searched,
    larger_candidates,
    linear_candidates,
    resized_candidates,
    stretched_candidates,
    with_less_decay,
)
from tausid.training.consensus import Consensus
from tausid.training.driver import Session
from tausid.training.jobs import Job
from tausid.training.levenberg_marquardt import TRIED
from tausid.training.parts import Folds, LevenbergMarquardt
from tausid.training.pooling import NEGLIGIBLE
from tausid.training.problem import Problem
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task
from tausid.training.result import FoldCurves, HistoryRow, Trust
from tausid.training.run_state import RunState, Status
from tausid.training.trials import Trials

# A nonlinear model must have a held-out error lower than the linear one's by this factor, and in most folds: a few
# percent of four folds are chance, and what is nonlinear may go anywhere outside the data. In no fold may it be
# worse by the second factor, unless it is better over all of them together.
BETTER, FAR_WORSE = 0.9, 1.5
# Candidates whose held-out error is the lowest one but for this factor are as good.
AS_GOOD = 0.98
# Candidates within this factor of the best held-out error may take part in the final fits. Those do whose error and
# disagreement of folds with other inputs are together within the second factor of the best: at most so many, with so
# many fits in all.
NEAR, CLOSE, FINALISTS, FINAL_FITS = 1.3, 1.1, 3, 5
# Held-out error of the linear model beyond which it does not say how many states there are.
SAYS_NOTHING = 0.5
# Held-out error of the best candidate from whole records beyond which others start from short stretches of them.
EXPLAINED = 0.1
# Kinds of networks as close, with which other numbers of states and less weight decay are tried, at most.
KINDS_TO_VARY = 2
# Samples of all outputs in all final fits together, beyond which there are fewer of them.
FINAL_OUTPUTS = 100_000
# Members that lie further apart than this, and than the linear model is wrong on held-out data, are not trusted. Nor
# are they where their held-out error, larger by the share that they lie apart of what sets them apart from the linear
# model, is not below that one's: what they add to it is not agreed upon.
APART = 0.5
# A final fit is stuck where its training error is so many times that of the folds.
STUCK = 1.1
# A fit has gone astray where its error on its own records is so many times the one of folds on what they did not see:
# held-out stretches were too short to judge by.
ASTRAY = 1.5
# Candidates that are fitted where all final fits of the best ones went astray, linear ones first.
SECOND_CHOICES = 4


@dataclass(frozen=True, eq=False)
class Found:
    """What a search ends with.

    Args:
        problem: the problem of the chosen model.
        run: how it ended.
        curves: what folds said of it; None where validation records decided.
        trust: how far it can be trusted.
        members: the models of all final fits, the chosen one first.
        tried_on: in words, what part of long records structures were tried on.
    """

    problem: Problem
    run: RunState
    curves: FoldCurves | None
    trust: Trust
    members: tuple[Model, ...] = ()
    tried_on: str = ""


def search(task: Task, session: Session, members: int = 1) -> Found:
    """The model that held-out data and the consensus of several fits prefer; at least so many members."""
    with contextlib.closing(Trials(task, session)) as trials:
        return _search(task, trials, members)


def _search(task: Task, trials: Trials, members: int) -> Found:
    count = max(_affordable(task) if is_searched(task) else 1, members)
    raced = trials.splits and (is_searched(task) or isinstance(task.problem.recipe.holdout, Folds))
    ranking = _race(task, trials, count) if raced else []
    if ranking and not np.isfinite(trials.of(ranking[0]).lowest):
        trials.must_last = False  # the plant itself may be unstable
        ranking = _race(task, trials, count)
    finalists = [task.problem.recipe] if not raced else _finalists(trials, ranking) if ranking else []
    fits = _final_fits(trials, finalists, count)
    sound = _sound(trials, fits)
    for recipe in _second_choices(trials, ranking, finalists) if fits else ():
        if not sound and trials.of(recipe).lowest < min(_risk(trials, job) for job in fits):
            fits = [*fits, *_final_fits(trials, [recipe], count)]
            sound = _sound(trials, fits)
    if trials.session.interrupted.is_set():
        return _interrupted(task, trials)
    if not fits:
        return _untrained(task, trials, Status.DIVERGED)
    some = fits if sound else [*fits, *_folds_of(trials, fits[0].recipe)]
    best = min(some, key=lambda job: _risk(trials, job))
    return _agree(task, trials, sound if best in sound else [best])


def _affordable(task: Task) -> int:
    """How many final fits are made: fewer where records are long, which say more than the agreement of fits."""
    return max(1, min(FINAL_FITS, FINAL_OUTPUTS // sum(record.y.size for record in task.problem.split.train)))


def _race(task: Task, trials: Trials, final_fits: int) -> list[Recipe]:
    """The candidates that were tried to the end, the one that held-out data prefer first; none when interrupted."""
    folds, later = len(trials.splits), final_fits + (4 * len(trials.splits) if is_searched(task) else 0)
    trials.progress.final_fits = final_fits
    trials.progress.to_come = later + folds * len(KINDS)
    linear = _grow(task, trials, trials.race(linear_candidates(task, trials.most_states)))
    unknown = not linear or not trials.of(linear[0]).lowest < SAYS_NOTHING
    trials.progress.to_come = later
    first = first_candidates(task, _states(task, trials, linear) if linear else None)
    ranking, stretched = trials.race(first), []
    if ranking and not trials.of(ranking[0]).lowest < EXPLAINED:
        stretched = stretched_candidates(task, first[0].structure.order)
        ranking = _rank(trials, [*ranking, *trials.race(stretched)])
    trials.progress.to_come = final_fits
    kinds = [recipe for recipe in ranking if not is_linear(recipe)]
    best = [kind for kind in kinds if trials.of(kind).lowest <= CLOSE * trials.of(kinds[0]).lowest][:KINDS_TO_VARY]
    resized = resized_candidates(task, [*best, *stretched[:1]], trials.most_states, unknown=unknown)
    varied = [*resized, *with_less_decay(task, best)]
    ranking = _grow(task, trials, _rank(trials, [*linear, *ranking, *trials.race(varied)]))
    return [] if trials.session.interrupted.is_set() else ranking


def _grow(task: Task, trials: Trials, ranking: list[Recipe]) -> list[Recipe]:
    """Candidates with what may be better than the best one tried as well, as long as something is."""
    while ranking and not trials.session.interrupted.is_set() and (more := _further(task, trials, ranking[0])):
        ranking = _rank(trials, [*ranking, *trials.race(more)])
    return ranking


def _states(task: Task, trials: Trials, linear: Sequence[Recipe]) -> int:
    """The fewest states of a linear model that is about as good as the best one, or those of the first linear
    approximation, if more: one state too few is worse than one too many."""
    limit = CLOSE * max(trials.of(linear[0]).lowest, NEGLIGIBLE)
    fewest = min(recipe.structure.order for recipe in linear if trials.of(recipe).lowest <= limit)
    return max(fewest, task.problem.recipe.structure.order)


def _further(task: Task, trials: Trials, best: Recipe) -> list[Recipe]:
    """What may still be better than the best one, and was not tried: more states, and then less decay."""
    for more in (larger_candidates(task, best, trials.most_states), with_less_decay(task, [best])):
        if new := [recipe for recipe in more if not trials.tried(recipe)]:
            return new
    return []


def _rank(trials: Trials, recipes: Sequence[Recipe]) -> list[Recipe]:
    """Candidates by their held-out error; of those that are about as good as the best, the simplest one first."""
    ranking = sorted(dict.fromkeys(recipes), key=lambda recipe: trials.of(recipe).lowest)
    limit = max(trials.of(ranking[0]).lowest, NEGLIGIBLE) / AS_GOOD
    as_good = [recipe for recipe in ranking if trials.of(recipe).lowest <= limit]
    simplest = min(as_good, key=lambda recipe: (not is_linear(recipe), recipe.structure.order), default=ranking[0])
    return [simplest, *(recipe for recipe in ranking if recipe != simplest)]


def _finalists(trials: Trials, ranking: Sequence[Recipe]) -> list[Recipe]:
    """Candidates that are about as good as the best one; the linear model alone where none is clearly better.

    Held-out data are like the training data. How far folds lie apart with other inputs says what to expect of these.
    """
    lowest = trials.of(ranking[0]).lowest
    if not np.isfinite(lowest):
        return []
    linear = next((recipe for recipe in ranking if is_linear(recipe)), None)
    if linear is not None and not _clearly_better(trials.of(ranking[0]), trials.of(linear)):
        return [_simplest_linear(trials, linear)]
    near = [r for r in ranking if not is_linear(r) and trials.of(r).lowest <= NEAR * max(lowest, NEGLIGIBLE)]
    better = [r for r in near if linear is None or _clearly_better(trials.of(r), trials.of(linear))]
    risks = {recipe: math.hypot(trials.of(recipe).lowest, trials.spread(recipe)) for recipe in better}
    limit = CLOSE * max(min(risks.values()), NEGLIGIBLE)
    return [recipe for recipe in better if risks[recipe] <= limit][:FINALISTS]


def _simplest_linear(trials: Trials, best: Recipe) -> Recipe:
    """The linear candidate with the fewest states that is not worse than the best one by more than a standard error."""
    tried = sorted(_linear_tried(trials), key=lambda recipe: (recipe.structure.order, trials.of(recipe).lowest))
    return next(r for r in tried if r == best or _is_chance(trials.of(r), trials.of(best)))


def _is_chance(worse: FoldCurves, better: FoldCurves) -> bool:
    """Whether the mean of the folds' relative differences is within its standard error."""
    count = len(worse.at_best)
    if count != len(better.at_best) or count < 2 or not np.isfinite(worse.lowest):
        return False
    relative = np.log(np.maximum(worse.at_best, NEGLIGIBLE) / np.maximum(better.at_best, NEGLIGIBLE))
    return bool(np.mean(relative) <= np.std(relative, ddof=1) / math.sqrt(count))


def _clearly_better(best: FoldCurves, linear: FoldCurves) -> bool:
    """Whether the lowest held-out error is below the linear model's, in most folds, and over all of them together or
    in none far above: a model that is far better in some and far worse in one is not to be trusted."""
    if not np.isfinite(linear.lowest):
        return True
    errors, of_linear = np.array(best.at_best), np.maximum(linear.at_best, NEGLIGIBLE)
    if not max(best.lowest, NEGLIGIBLE) < BETTER * linear.lowest:
        return False
    most = np.count_nonzero(errors < of_linear) > len(errors) / 2
    together = np.sum(errors**2) < np.sum(of_linear**2)
    return bool(most and (together or np.all(errors < FAR_WORSE * of_linear)))


def _second_choices(trials: Trials, ranking: Sequence[Recipe], finalists: Sequence[Recipe]) -> list[Recipe]:
    """What is fitted where the finalists went astray: other candidates, linear ones first."""
    others = [r for r in ranking if r not in finalists and np.isfinite(trials.of(r).lowest)]
    return sorted(others, key=lambda recipe: not is_linear(recipe))[:SECOND_CHOICES]


def _final_fits(trials: Trials, finalists: Sequence[Recipe], count: int) -> list[Job]:
    """Fits of the finalists on all records, in turn, each from a start of its own; those that simulate."""
    jobs = []
    for number in range(count if finalists else 0):
        variant, place = divmod(number, len(finalists))
        recipe = finalists[place]
        if variant and has_one_start(recipe):
            continue
        jobs.append(_final(trials, recipe, variant))
    trials.run(jobs)
    jobs = _again_from_folds(trials, jobs)
    return [job for job in jobs if job in trials.done and trials.done[job].model is not None]


def _again_from_folds(trials: Trials, jobs: Sequence[Job]) -> list[Job]:
    """Fits that ended in a worse minimum than the folds are made once more, from the fold with the lowest training
    error; the better one of both counts."""
    done, again = trials.done, {}
    for job in jobs:
        folds = _folds_of(trials, job.recipe)
        if job in done and folds and done[job].training_error > STUCK * math.sqrt(job.loss):
            best = min(folds, key=lambda fold: done[fold].training_error)
            again[job] = dataclasses.replace(job, variant=0, begin=best.fold)
    trials.run(list(dict.fromkeys(again.values())))
    better = {
        job: new for job, new in again.items() if new in done and done[new].training_error < done[job].training_error
    }
    return list(dict.fromkeys(better.get(job, job) for job in jobs))


def _final(trials: Trials, recipe: Recipe, variant: int = 0) -> Job:
    """A final fit, to where folds were best: after as many steps, and with Levenberg-Marquardt not above their training
    error, as the same number of iterations may lead less far from another start."""
    by_lm = isinstance(recipe.trainer, LevenbergMarquardt)
    if by_lm and recipe.structure.correction == "none" and trials.task.plant is not None:
        return Job(recipe, None, variant, 0)  # known equations alone: their parameters are fitted already
    if not isinstance(recipe.holdout, Folds):
        return Job(recipe, None, variant)
    chosen = trials.of(recipe).chosen
    loss = trials.loss_at_best(recipe) if by_lm and chosen else math.inf
    further = by_lm and chosen >= TRIED  # folds were still getting better at their end
    return Job(recipe, None, variant, chosen, loss, further=further)


def _agree(task: Task, trials: Trials, sound: list[Job], doubt: float | None = None) -> Found:
    """The fit nearest to the median of all; where they do not agree, the linear model, with the doubt in them."""
    voters = [job for recipe in dict.fromkeys(job.recipe for job in sound) for job in _models_of(trials, recipe)]
    linear, consensus, order = _linear_error(trials), None, list(range(len(sound)))
    jury = [*sound, *(job for job in voters if job not in sound)]
    if len(jury) > 2:
        models, others = (list(map(trials.model, jobs)) for jobs in (jury, _linear_folds(trials, linear)))
        consensus = trials.panel.compare(models, others)
        order = [i for i in consensus.order if i < len(sound)]
    chosen = sound[order[0]]
    nonlinear = not is_linear(chosen.recipe)
    if linear and consensus and nonlinear and _untrusted(trials, chosen, consensus, linear[1]):
        job = _final(trials, linear[0])
        trials.run([job])
        if job not in trials.done:
            return _interrupted(task, trials)
        if trials.done[job].model is not None and _risk(trials, job) < _risk(trials, chosen) * (1.0 + consensus.doubt):
            return _agree(task, trials, [job], consensus.doubt)
    curves = trials.of(chosen.recipe) if isinstance(chosen.recipe.holdout, Folds) else None
    distance = None if consensus is None else consensus.spread
    trust = Trust(_held_out(trials, chosen), None if linear is None else linear[1], len(jury), distance, doubt)
    members = tuple(trials.model(sound[i]) for i in order)
    return Found(trials.problem(chosen), _run_of(trials, chosen), curves, trust, members, trials.tried_on)


def _untrusted(trials: Trials, job: Job, consensus: Consensus, linear: float) -> bool:
    """Whether a nonlinear model should give way to the linear one, whose held-out error is given."""
    held_out = _held_out(trials, job)
    apart = consensus.spread > max(APART, linear)
    return held_out is not None and (apart or held_out * (1.0 + consensus.doubt) > linear)


def _sound(trials: Trials, fits: Sequence[Job]) -> list[Job]:
    """Fits whose error on their own records is not much above that of folds on what they did not see."""
    return [job for job in fits if _risk(trials, job) <= ASTRAY * max(trials.of(job.recipe).lowest, NEGLIGIBLE)]


def _risk(trials: Trials, job: Job) -> float:
    """The error to expect of a fit: that of its folds on held-out data, or that on its own records, if it is larger.

    The latter are simulated like new ones, from estimated initial states: all states must show in a few samples.
    """
    held_out = trials.of(job.recipe).lowest
    if trials.runs_away(job):
        return math.inf
    if not isinstance(job.recipe.holdout, Folds) or trials.task.plant is not None:
        return held_out
    own = trials.own_error(job)
    return max(held_out, own) if np.isfinite(own) else math.inf


def _folds_of(trials: Trials, recipe: Recipe) -> list[Job]:
    """The folds of a candidate that ended with a model."""
    return [job for job in _models_of(trials, recipe) if job.fold is not None]


def _models_of(trials: Trials, recipe: Recipe) -> list[Job]:
    """The folds and final fits of a candidate that ended with a model, those that went astray among them."""
    jobs = [Job(recipe, k) for k in range(len(trials.splits))]
    final = [job for job in trials.done if job.recipe == recipe and job.fold is None]
    return [job for job in [*jobs, *final] if job in trials.done and trials.done[job].model is not None]


def _linear_error(trials: Trials) -> tuple[Recipe, float] | None:
    """The linear candidate and its held-out error; None where none was tried to the end."""
    best = min(_linear_tried(trials), key=lambda r: (trials.of(r).lowest, r.structure.order), default=None)
    if best is None or not np.isfinite(trials.of(best).lowest):
        return None
    simplest = _simplest_linear(trials, best)
    return simplest, trials.of(simplest).lowest


def _linear_tried(trials: Trials) -> set[Recipe]:
    return {job.recipe for job in trials.done if is_linear(job.recipe)}


def _linear_folds(trials: Trials, linear: tuple[Recipe, float] | None) -> list[Job]:
    return [] if linear is None else _folds_of(trials, linear[0])


def _held_out(trials: Trials, job: Job) -> float | None:
    """The held-out error of a candidate; that of its final fit where nothing else was tried."""
    errors = (trials.of(job.recipe).lowest, trials.done[job].curve.lowest)
    return next((float(error) for error in errors if np.isfinite(error)), None)


def _run_of(trials: Trials, job: Job) -> RunState:
    """A finished job as what training ended with."""
    trial, tau = trials.done[job], trials.task.problem.initial_model.tau
    assert trial.model is not None
    rows = zip(trial.curve.steps[1:], trial.curve.losses[1:], trial.curve.errors[1:], strict=True)
    history = tuple(HistoryRow(k, loss, error, float("nan"), tau, trial.curve.seconds) for k, loss, error in rows)
    last, validated = trial.curve.steps[-1], not np.isnan(trial.curve.errors[-1])
    best = trial.curve.steps[int(np.argmin(trial.curve.errors))] if validated else last
    weights, score = trial.model.state_space, trial.curve.lowest
    return RunState(None, weights, last, weights, score, best, history, trials.progress.seconds, Status.COMPLETED)


def _interrupted(task: Task, trials: Trials) -> Found:
    """A fit of the candidate with the lowest held-out error so far; the start where none has ended."""
    ended = [job for job, trial in trials.done.items() if trial.model is not None]
    if not ended:
        return _untrained(task, trials, Status.INTERRUPTED)
    best = min(
        ended, key=lambda job: (trials.of(job.recipe).lowest, job.fold is not None, trials.done[job].curve.lowest)
    )
    run = dataclasses.replace(_run_of(trials, best), status=Status.INTERRUPTED)
    return Found(trials.problem(best), run, None, Trust())


def _untrained(task: Task, trials: Trials, status: Status) -> Found:
    """The start itself, as what training ended with."""
    problem = task.problem
    weights = problem.first_weights
    run = RunState(None, weights, 0, weights, np.inf, 0, (), trials.progress.seconds, status)
    return Found(problem, run, None, Trust())
