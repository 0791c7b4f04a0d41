"""The search: candidates and their race, final fits and their consensus, trust, interruption, resuming."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from problems import multisine, oscillator_record, wiener_record

import tausid
from tausid import ConfigError, DataError, Record, StorageError, recipes
from tausid.model.arrays import named_arrays
from tausid.training import search, trials
from tausid.training.candidates import (
    LINEAR,
    describe,
    first_candidates,
    is_linear,
    is_searched,
    larger_candidates,
    linear_candidates,
    resized_candidates,
    stretched_candidates,
    with_less_decay,
)
from tausid.training.checkpoint import StoredTrial, load_trials, save_trials
from tausid.training.consensus import FAR, Consensus, Panel
from tausid.training.driver import Session
from tausid.training.full_error import full_error
from tausid.training.jobs import Job, Trial, job_key
from tausid.training.parts import Folds, Given, LevenbergMarquardt, RandomDynamics
from tausid.training.pooling import pool
from tausid.training.processes import LocalWorkers
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task, resolve
from tausid.training.result import FoldCurve, FoldCurves
from tausid.training.search import _clearly_better, _race
from tausid.training.trials import Trials

# A search that ends within seconds: small networks of two states, two folds.
SMALL = {"structure.hidden": (3,), "trainer.iterations": 12, "holdout": Folds(2)}


def quick_fit(record: Record | None = None, settings: dict | None = None, **changes) -> tausid.FitResult:
    arguments = {"seed": 0, "nx": 2, "progress": None, **changes}
    record = wiener_record(120) if record is None else record
    return tausid.fit(record, settings={**SMALL, **(settings or {})}, **arguments)


def make_task(record: Record | None = None, settings: dict | None = None, **arguments) -> Task:
    recipe = recipes.default().change({**SMALL, **(settings or {})})
    record = wiener_record(120) if record is None else record
    return resolve(recipe, record, **{"tau": 2.0, "seed": 0, **arguments})


def quiet(folder: Path | None = None) -> Session:
    return Session(folder, lambda update: None, threading.Event())


def same(a: tausid.Model, b: tausid.Model) -> bool:
    x, y = named_arrays(a.state_space), named_arrays(b.state_space)
    return x.keys() == y.keys() and all(np.array_equal(x[name], y[name]) for name in x)


# Candidates


def kinds_of(recipe: Recipe) -> tuple:
    structure = recipe.structure
    return structure.network, structure.activation, structure.nonlinear_g, recipe.start.kind


def test_all_kinds_of_networks_and_starts_are_candidates():
    task = make_task()
    first = first_candidates(task)
    assert is_searched(task) and is_linear(first[0]) and sum(map(is_linear, first)) == 1
    assert len(set(first)) == len(first)
    assert {kind for recipe in first[1:] for kind in [kinds_of(recipe)[0]]} == {"mlp", "polynomial"}
    assert any(isinstance(recipe.start, RandomDynamics) and recipe.structure.nonlinear_g for recipe in first)
    assert {recipe.structure.nx for recipe in first} == {task.problem.recipe.structure.nx}
    assert len({job_key(Job(recipe, 0)) for recipe in first}) == len(first)


def test_some_kinds_start_from_short_stretches_where_there_is_a_search():
    found = stretched_candidates(make_task(), 2)
    assert [kinds_of(recipe) for recipe in found] == [
        ("mlp", "tanh", False, "from-linear"), ("polynomial", "leaky_relu", False, "from-linear"),
    ]  # fmt: skip
    assert all(recipe.start.stretches and recipe.structure.nx == 2 for recipe in found)
    assert not {job_key(Job(recipe, 0)) for recipe in found} & {
        job_key(Job(r, 0)) for r in first_candidates(make_task())
    }
    assert stretched_candidates(make_task(settings={"search": "fixed", "structure.nx": 2}), 2) == []


@pytest.mark.parametrize(
    ("asked", "open_ones"),
    [
        ({"structure.network": "polynomial"}, {("polynomial", "leaky_relu", False, "from-linear")}),
        (
            {"structure.activation": "tanh", "structure.nonlinear_g": True, "structure.network": "mlp"},
            {("mlp", "tanh", True, "from-linear"), ("mlp", "tanh", True, "random-dynamics")},
        ),
    ],
)
def test_what_was_asked_for_leaves_no_other_choice(asked, open_ones):
    assert {kinds_of(recipe) for recipe in first_candidates(make_task(settings=asked)) if not is_linear(recipe)} == (
        open_ones
    )


@pytest.mark.parametrize("settings", [{"holdout": "none"}, {"search": "fixed"}, {"start": "random"}])
def test_where_nothing_is_searched_the_recipe_is_the_only_candidate(settings):
    task = make_task(settings={**settings, "structure.nx": 2})
    assert not is_searched(task) and first_candidates(task) == [task.problem.recipe]
    assert resized_candidates(task, [task.problem.recipe], 9) == [] == linear_candidates(task, 9)


def test_polynomials_of_many_states_are_not_tried():
    names = [kinds_of(recipe)[0] for recipe in first_candidates(make_task(settings={"structure.nx": 6}))]
    assert "polynomial" not in names and "mlp" in names


def test_the_best_kind_is_tried_with_fewer_states_and_all_kinds_with_one_more():
    task = make_task()
    order = task.problem.recipe.structure.order
    _, *others = first_candidates(task)
    found = resized_candidates(task, [others[3]], most_states=9)
    larger = [recipe for recipe in found if recipe.structure.nx > order]
    smaller = [recipe for recipe in found if recipe.structure.nx < order]
    assert larger == [kind.with_structure(nx=order + 1) for kind in others]
    assert {kinds_of(recipe) for recipe in smaller} == {kinds_of(others[3])}
    assert {recipe.structure.nx for recipe in smaller} == {order - 1, (order + 1) // 2} - {0, order}
    assert len(set(found)) == len(found) == len(larger) + len(smaller)
    # Around as many as it has, and with as many as the linear approximation has.
    found = resized_candidates(task, first_candidates(task, order + 4)[1:2], most_states=99)
    assert {recipe.structure.nx for recipe in found} == {order + 5, order + 3, (order + 5) // 2, order}
    assert not any(recipe.structure.nx > order for recipe in resized_candidates(task, others, most_states=order))
    assert resized_candidates(task, [], 9) == []
    given = make_task(settings={"structure.nx": 2})
    assert resized_candidates(given, first_candidates(given), 9) == []
    # Where no linear model fits, all small numbers of states are tried.
    found = resized_candidates(task, others[:1], most_states=9, unknown=True)
    assert {1, 2, 3} <= {recipe.structure.nx for recipe in found} | {order}


def test_linear_models_of_several_orders_are_compared_with():
    task = make_task()
    order = task.problem.recipe.structure.order
    found = linear_candidates(task, most_states=99)
    assert all(map(is_linear, found)) and {1, 2, 3, 4, order, order + 2} <= {recipe.structure.nx for recipe in found}
    assert all(recipe.structure.nx <= order + 1 for recipe in linear_candidates(task, most_states=order + 1))
    assert linear_candidates(make_task(settings={"structure.nx": 2}), most_states=99) == []


def test_networks_have_as_many_states_as_the_simplest_good_linear_model():
    """Not as many as the first linear approximation, whose order is a guess from fewer data."""
    task = make_task()
    errors = {1: 0.5, 2: 0.4, 3: 0.21, 4: 0.2}
    told = Told(task, lambda recipe, fold: errors.get(recipe.structure.order, 0.3) if is_linear(recipe) else 0.1)
    _race(task, told, 1)
    tried = [job.recipe for job in told.done if not is_linear(job.recipe)]
    assert tried[0].structure.nx == 3 != task.problem.recipe.structure.nx
    # Where none of them says anything, as many as that has.
    told = Told(task, lambda recipe, fold: 0.9 if is_linear(recipe) else 0.1)
    _race(task, told, 1)
    tried = [job.recipe for job in told.done if not is_linear(job.recipe)]
    assert tried[0].structure.nx == task.problem.recipe.structure.nx


def test_states_are_added_as_long_as_more_of_them_are_better():
    task = make_task(wiener_record(1000))
    recipe = task.problem.recipe
    most = 2 * recipe.structure.order + 2
    more = larger_candidates(task, recipe.with_structure(nx=most - 2), 99)
    assert [(r.structure.nx, r.structure.nonlinear_g) for r in more] == [
        (most - 1, False),
        (most, False),
        (most - 2, True),
    ]
    (of_g,) = larger_candidates(task, recipe.with_structure(nx=most), 99)  # twice the linear approximation's, and two
    assert of_g.structure.nx == most and of_g.structure.nonlinear_g
    assert larger_candidates(task, LINEAR.apply(recipe, most), 99) == []
    assert larger_candidates(task, recipe.with_structure(nx=3, nonlinear_g=True), 4)[0].structure.nx == 4
    cubic = recipe.with_structure(network="polynomial", nx=4)  # 4 states and an input have 50 monomials, 5 have 77
    roomy = dataclasses.replace(task, problem=dataclasses.replace(task.problem, recipe=recipe.with_structure(nx=9)))
    assert larger_candidates(roomy, cubic, 99) == []
    assert [r.structure.nx for r in larger_candidates(roomy, cubic.with_structure(nx=2), 99)] == [3, 4]
    for linear in (False, True):
        for best in (most - 2, most):  # states up to these halve the error; two more are tried
            told = Told(
                task,
                lambda r, fold, best=best, linear=linear: (
                    0.9 if is_linear(r) != linear else 0.5 ** min(r.structure.order, best)
                ),
            )
            found = _race(task, told, 1)[0]
            assert found.structure.order == best and is_linear(found) == linear
            assert max(job.recipe.structure.order for job in told.done if is_linear(job.recipe) == linear) == most


def test_nonlinear_candidates_are_tried_with_less_decay():
    task = make_task()
    linear, first, *_ = first_candidates(task)
    (found,) = with_less_decay(task, [linear, first])
    assert found.trainer.independent == "residuals" and first.trainer.independent == "tau"
    assert found.structure == first.structure and job_key(Job(found, 0)) != job_key(Job(first, 0))
    assert with_less_decay(make_task(settings={"search": "fixed", "structure.nx": 2}), [first]) == []


def test_structures_are_described_in_words():
    task = make_task()
    assert describe(LINEAR.apply(task.problem.recipe, 1).structure) == "1 state, linear"
    structure = task.problem.recipe.with_structure(nx=3, activation="tanh", nonlinear_g=True).structure
    assert describe(structure) == "3 states, tanh, f and g nonlinear"
    assert describe(dataclasses.replace(structure, network="polynomial", nonlinear_g=False)) == (
        "3 states, polynomial, f nonlinear"
    )


# The race


class Told(Trials):
    """Trials whose errors are known: by a function of the recipe and the fold."""

    def __init__(self, task: Task, errors) -> None:
        super().__init__(task, quiet())
        self.errors = errors

    def _do(self, job: Job) -> Trial:
        error = self.errors(job.recipe, job.fold)
        return Trial(FoldCurve((0, 1), (2.0 * error, error), 10, 0.1, (1.0, error**2)), None)


def test_candidates_that_stay_far_behind_are_not_tried_to_the_end():
    task = make_task(wiener_record(300), {"holdout": Folds(4)})
    linear, good, close, slow, bad, *_ = first_candidates(task)
    first, second, third = trials.HOPELESS
    errors = {linear: 9.0, good: 1.0, close: 0.99 * third, slow: 0.99 * first, bad: 1.01 * first}
    told = Told(task, lambda recipe, fold: errors[recipe])
    assert told.race([bad, close, linear, good, slow]) == [good, close, linear]
    tried = {recipe: sum(job.recipe == recipe for job in told.done) for recipe in errors}
    assert tried == {linear: 4, good: 4, close: 4, slow: 2, bad: 1}  # the linear one is always compared with
    assert told.of(bad).lowest == np.inf and told.of(bad, [0]).lowest == pytest.approx(errors[bad])
    assert told.race([]) == []
    assert first > second > third  # one fold alone may be unlike the others


def test_where_the_best_candidate_fails_late_those_that_it_left_behind_go_on():
    task = make_task(wiener_record(300), {"holdout": Folds(4)})
    linear, best, good, bad, *_ = first_candidates(task)
    errors = {linear: 5.0, best: 1.0, good: 3.0, bad: 9.0}
    told = Told(task, lambda recipe, fold: np.inf if (recipe, fold) == (best, 2) else errors[recipe])
    assert told.race([linear, best, good, bad]) == [good, linear]
    # It was given up meanwhile, and is no choice any more; what it was far better than is compared with the others.
    assert {job.fold for job in told.done if job.recipe == best} == {0, 1, 2}
    assert {job.fold for job in told.done if job.recipe == bad} == {0, 1}


def test_idle_cores_work_ahead_and_only_what_is_asked_for_counts():
    task = make_task(wiener_record(300), {"holdout": Folds(2)})
    _, good, slow, other, bad, *_ = first_candidates(task)
    errors, begun, ahead = {good: 1.0, slow: 1.1, other: 1.2, bad: 9.0}, [], threading.Event()

    class Slow(Told):
        def _do(self, job: Job) -> Trial:
            begun.append(job)
            if job == Job(slow, 0):
                assert ahead.wait(20)  # the first fold ends after the second one of all others has begun
            if {Job(good, 1), Job(other, 1), Job(bad, 1)} <= set(begun):
                ahead.set()
            return super()._do(job)

    told = Slow(task, lambda recipe, fold: errors[recipe])
    told._cores = 2
    assert told.race([bad, slow, other, good]) == [good, slow, other]
    assert Job(bad, 1) in begun and Job(bad, 1) not in told.done and told.of(bad).lowest == np.inf
    assert len(begun) == len(set(begun))  # nothing is done twice
    # One core has nothing to spare.
    begun.clear()
    alone = Slow(task, lambda recipe, fold: errors[recipe])
    alone._cores = 1
    assert alone.race([bad, slow, other, good]) == [good, slow, other] and Job(bad, 1) not in begun


def test_folds_of_the_only_candidate_run_side_by_side():
    task = make_task(wiener_record(300), {"holdout": Folds(4)})
    both = threading.Barrier(2)

    class Pairs(Told):
        def _do(self, job: Job) -> Trial:
            both.wait(20)  # nobody goes on before two are here
            return super()._do(job)

    told = Pairs(task, lambda recipe, fold: 1.0)
    told._cores = 2
    assert told.race([task.problem.recipe]) == [task.problem.recipe] and len(told.done) == 4


def test_a_fold_in_a_bad_minimum_is_trained_once_more_from_another_start():
    task = make_task(wiener_record(300), {"holdout": Folds(3)})
    linear, candidate, *_ = first_candidates(task)

    class Stuck(Trials):
        def _do(self, job: Job) -> Trial:
            error = 5.0 * trials.STUCK if job.fold == 1 and not job.variant else 1.0
            return Trial(FoldCurve((0,), (error,), 10, 0.1, (error**2,)), task.problem.initial_model)

    tried = Stuck(task, quiet())
    tried.race([linear, candidate])
    assert [job for job in tried.done if job.variant] == [Job(candidate, 1, variant=1)]  # a linear model has one start
    assert tried.of(candidate).lowest == pytest.approx(1.0) and tried.of(linear).lowest > 1.0


def test_a_race_with_a_stuck_fold_goes_on_as_it_was(tmp_path):
    """What is written is what was trained, not what a repetition replaced: decisions come out the same."""
    task = make_task(wiener_record(300), {"holdout": Folds(3)})
    _, first, second, *_ = first_candidates(task)

    class Stuck(Trials):
        def _do(self, job: Job) -> Trial:
            stored = self._stored.get(job_key(job))
            if stored is not None:
                return Trial(stored.curve, task.problem.initial_model)
            stuck = job.recipe == first and job.fold == 0 and not job.variant
            error = 5.0 * trials.STUCK if stuck else 1.0 + (job.recipe == second)
            return Trial(FoldCurve((0,), (error,), 10, 0.1, (error**2,)), task.problem.initial_model)

    whole = Stuck(task, quiet(tmp_path))
    ranking = whole.race([first, second])
    again = Stuck(task, quiet(tmp_path))
    assert again._stored and again.race([first, second]) == ranking
    assert {job: t.curve.lowest for job, t in again.done.items()} == {j: t.curve.lowest for j, t in whole.done.items()}


def test_one_fold_alone_does_not_end_a_candidate():
    task = make_task(wiener_record(300), {"holdout": Folds(4)})
    _, good, odd, *_ = first_candidates(task)
    told = Told(task, lambda recipe, fold: 1.6 if recipe == odd and fold == 0 else 1.0)
    assert set(told.race([good, odd])) == {good, odd}


def test_luck_in_the_first_fold_does_not_end_all_others():
    task = make_task(wiener_record(300), {"holdout": Folds(4)})
    _, lucky, good, other, bad, *_ = first_candidates(task)
    first = {lucky: 0.1, good: 1.0, other: 1.1, bad: 1.2}
    told = Told(task, lambda recipe, fold: first[recipe] if fold == 0 else 20.0 if recipe == lucky else 1.0)
    assert told.race([lucky, good, other, bad])[0] == good
    assert told.of(bad, [1]).lowest == np.inf  # not among the best three


class ToldWith(Told):
    """Trials whose errors and models are known."""

    def __init__(self, task: Task, errors, model: tausid.Model) -> None:
        super().__init__(task, errors)
        self.model_of_all = model

    def _do(self, job: Job) -> Trial:
        return dataclasses.replace(super()._do(job), model=self.model_of_all)


def test_models_that_run_away_are_candidates_only_where_all_do(model, monkeypatch):
    task = make_task()
    network, other = [recipe for recipe in first_candidates(task) if not is_linear(recipe)][:2]
    told = ToldWith(task, lambda recipe, fold: 0.1, model)
    assert told.race([network, other]) == [network, other] and told.of(network).lowest == pytest.approx(0.1)
    monkeypatch.setattr(trials, "lasts", lambda model, records: False)
    told = ToldWith(task, lambda recipe, fold: 0.1, model)
    told.race([network, other])
    assert told.of(network).lowest == np.inf
    told.must_last = False
    assert told.of(network, [0]).lowest == pytest.approx(0.1)
    # An unstable plant, observed while something else kept it near.
    assert np.isfinite(quick_fit().trust.held_out)


def test_errors_that_are_as_good_as_none_are_not_compared():
    task = make_task()
    linear, first, second, *_ = first_candidates(task)
    errors = {linear: 5e-5, first: 1e-6, second: 1e-9}
    told = Told(task, lambda recipe, fold: errors[recipe])
    assert set(told.race(list(errors))) == set(errors)
    assert search._finalists(told, told.race(list(errors))) == [linear]


def test_finalists_are_as_good_as_the_best_and_clearly_better_than_the_linear_model():
    task = make_task()
    linear, a, b, c, d, *_ = first_candidates(task)

    def finalists(**errors: float) -> list[Recipe]:
        table = dict(zip((linear, a, b, c, d), errors.values(), strict=True))
        told = Told(task, lambda recipe, fold: table[recipe])
        return search._finalists(told, told.race(list(table)))

    assert finalists(linear=1.0, a=0.5, b=0.52, c=0.6, d=0.54) == [a, b, d]
    assert finalists(linear=1.0, a=0.995, b=1.1, c=1.2, d=1.2) == [linear]
    assert finalists(linear=1.0, a=0.97, b=1.0, c=1.2, d=1.2) == [linear]  # by less than a tenth
    assert finalists(linear=1.0, a=0.87, b=1.0, c=1.2, d=1.2) == [a]
    assert finalists(linear=np.inf, a=0.5, b=np.inf, c=0.6, d=0.7) == [a]
    assert finalists(linear=np.inf, a=np.inf, b=np.inf, c=np.inf, d=np.inf) == []


def test_of_linear_models_the_simplest_is_taken_that_is_worse_by_chance_alone():
    """One fold of four decides between two and three states here: by 6 % in the mean, with a standard error of 7 %."""
    task = make_task(wiener_record(400), {"holdout": Folds(4)})
    errors = {1: (0.2,) * 4, 2: (0.1, 0.099, 0.099, 0.13), 3: (0.1,) * 4}
    one_fold = Told(task, lambda r, fold: errors.get(r.structure.order, (0.12,) * 4)[fold] if is_linear(r) else 0.3)
    ranking = _race(task, one_fold, 1)
    assert ranking[0].structure.order == 3
    (found,) = search._finalists(one_fold, ranking)
    assert is_linear(found) and found.structure.order == 2
    errors[2] = (0.103, 0.102, 0.103, 0.102)  # less in the mean of all, but in every fold
    every_fold = Told(task, one_fold.errors)
    assert search._finalists(every_fold, _race(task, every_fold, 1))[0].structure.order == 3


def test_of_candidates_that_are_near_those_are_fitted_whose_folds_agree(monkeypatch):
    task = make_task()
    linear, a, b, c, d, *_ = first_candidates(task)
    errors, spreads = {linear: 1.0, a: 0.3, b: 0.33, c: 0.35, d: 0.5}, {a: 0.4, b: 0.0, c: 0.03, d: 0.0}
    told = Told(task, lambda recipe, fold: errors[recipe])
    monkeypatch.setattr(told, "spread", spreads.__getitem__)
    # a is 0.5 from what is right where b is 0.33; d is too far behind on held-out data to be asked.
    assert search._finalists(told, told.race(list(errors))) == [b, c]


def test_the_spread_is_that_of_the_models_of_the_folds():
    task = make_task(wiener_record(300), {"holdout": Folds(3)})
    _, candidate, *_ = first_candidates(task)
    model = task.problem.initial_model

    class Scaled(Trials):
        """Folds whose outputs are 10 % more, and less, than the model's."""

        def _do(self, job: Job) -> Trial:
            factor = 1.0 if job.recipe != candidate else (0.9, 1.0, 1.1)[job.fold]
            return Trial(FoldCurve((0,), (1.0,), 10, 0.1, (1.0,)), with_outputs(model, factor))

    tried = Scaled(task, quiet())
    assert tried.spread(candidate) == 0.0  # nothing was tried
    tried.run([Job(candidate, k) for k in range(3)])
    assert tried.spread(candidate) == pytest.approx(0.1, rel=0.1)  # outputs are about a deviation in size


def test_a_fold_never_knows_what_it_holds_out():
    """Neither its training nor its start, the linear approximation: only the scaling is that of all records."""
    record = wiener_record(200)
    y = np.array(record.y)
    y[100:] = np.random.default_rng(5).permutation(y[100:])  # the second stretch, with the same mean and deviation
    starts = []
    for data in (record, dataclasses.replace(record, y=y)):
        trial = Trials(make_task(data, {"structure.nx": 2}), quiet())
        problem = trial.problem(Job(trial.task.problem.recipe, 1))
        assert np.isnan(problem.split.train[0].y[100:]).all() and not np.isnan(problem.split.train[0].y[:100]).any()
        starts.append(problem.first_weights)
    np.testing.assert_allclose(starts[0].f.linear, starts[1].f.linear, rtol=1e-9)
    np.testing.assert_allclose(starts[0].g.linear, starts[1].g.linear, rtol=1e-9)


class StandingStill(Task):
    """A task that cannot be trained on a part of its records."""

    def start(self, *arguments, **options):
        raise DataError("its input stands still.")


@pytest.mark.parametrize("holdout", [Folds(2), Given()])
def test_a_fold_that_cannot_be_trained_says_so(holdout):
    validation = wiener_record(60, seed=1) if holdout == Given() else None
    task = make_task(wiener_record(120), {"structure.nx": 2, "holdout": holdout}, validation=validation)
    task = StandingStill(task.asked, task.problem, 2.0, None)
    told = Trials(task, quiet())
    recipe = task.problem.recipe
    words = r"^its input stands still\.$"  # validation records: there are no folds
    if holdout == Folds(2):
        words = r"each fold must .* fold 1 of 2 with .* is not: its input .* Use fewer folds"
    with pytest.raises(DataError, match=words):
        told.run([Job(recipe, 0)])
    # What was not asked for itself is no choice.
    told = Trials(task, quiet())
    other = LINEAR.apply(recipe)
    told.run([Job(other, 0)])
    assert np.isinf(told.of(other, [0]).lowest)


# Consensus


@pytest.fixture(scope="module")
def model() -> tausid.Model:
    settings = {"structure.network": "mlp", "structure.activation": "tanh", "holdout": "none", "trainer.iterations": 8}
    return quick_fit(settings=settings).model


def with_outputs(model: tausid.Model, factor: float) -> tausid.Model:
    """The same model with its outputs, less their mean, so many times as large."""
    g = model.state_space.g
    g = dataclasses.replace(g, linear=factor * g.linear, bias=factor * g.bias).with_readout(factor * g.readout)
    return dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, g=g))


def runaway(model: tausid.Model) -> tausid.Model:
    f = dataclasses.replace(model.state_space.f, linear=100.0 * np.eye(*model.state_space.f.linear.shape))
    return dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, f=f))


def test_members_that_agree_are_near_and_one_that_does_not_is_far(model):
    members = [with_outputs(model, factor) for factor in (1.0, 1.01, 0.99, 1.02, -1.0)]
    found = Panel([wiener_record(120)], seed=0).compare(members)
    assert (found.order[0], found.order[-1]) == (0, 4)
    assert found.distances[0] < 0.005  # nearly the median of all, but for its estimates of initial states
    assert found.spread < 0.02 and found.distances[4] > 1.0
    # Outputs are a deviation in size: 1 % more is a distance of 1 %.
    np.testing.assert_allclose(found.distances[1:3], 0.01, rtol=0.5)


def test_the_same_members_agree_and_the_seed_decides_the_probes(model):
    record = wiener_record(120)
    assert Panel([record], seed=0).compare([model] * 3).spread == 0.0
    members = [with_outputs(model, factor) for factor in (1.0, 1.3, 0.5)]
    first, again, other = (Panel([record], seed).compare(members).distances for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_a_member_that_diverges_is_as_far_as_can_be(model):
    found = Panel([wiener_record(120)], seed=0).compare([model, model, runaway(model)])
    assert found.order[-1] == 2 and 1.0 < found.distances[2] <= FAR and found.spread == 0.0


def test_doubt_is_how_far_members_lie_apart_by_what_sets_them_apart_from_other_models(model):
    members = [with_outputs(model, factor) for factor in (1.0, 1.02, 0.98)]
    near, far = ([with_outputs(model, factor)] for factor in (1.02, 3.0))
    panel = Panel([wiener_record(120)], seed=0)
    found = {name: panel.compare(members, others) for name, others in (("near", near), ("far", far))}
    assert found["near"].departure == pytest.approx(0.02, rel=0.5) and found["far"].departure > 0.5
    assert found["near"].doubt > 0.5 and found["far"].doubt < 0.05
    assert panel.compare(members, members).doubt == np.inf  # nothing sets them apart
    alone = panel.compare(members)
    assert alone.doubt == alone.spread > 0  # nothing to compare with


# Whole searches


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search that was never stopped, with what it said, and its folder."""
    said: list = []
    folder = tmp_path_factory.mktemp("run")
    return quick_fit(progress=said.append, out=folder), said, folder


def test_a_search_says_how_it_goes_and_how_far_its_model_can_be_trusted(whole):
    result, said, _ = whole
    assert result.status == "completed" and result.folds.chosen > 0
    steps = [u.step for u in said]  # some twice on a busy machine, as silence is broken after two seconds
    assert steps == sorted(steps) and set(steps) == set(range(1, steps[-1] + 1)) and steps[-1] <= said[-1].max_steps
    assert any(u.note == "2 states, linear, fold 1 of 2" for u in said)
    assert all(u.best <= v.best for v, u in itertools.pairwise(said))
    trust = result.trust
    assert trust.held_out == result.folds.lowest and trust.held_out <= trust.linear
    assert trust.members > 2 and 0 < trust.distance < FAR
    assert f"{trust.members} models trained independently agree within" in result.message
    assert result.model.provenance["trust"] == dataclasses.asdict(trust)
    assert [row.validation for row in result.history] == [result.folds.at(row.step) for row in result.history]
    assert np.isnan([row.learning_rate for row in result.history]).all()


def test_the_model_is_the_one_that_its_training_ended_with(whole):
    """Resuming trains nothing and gives the same bits; another run's folder is refused."""
    result, _, folder = whole
    again = quick_fit(out=folder, resume=True)
    assert same(again.model, result.model)
    assert (again.folds, again.trust, again.message) == (result.folds, result.trust, result.message)
    with pytest.raises(ConfigError, match="holds one. Resume it"):
        quick_fit(out=folder)
    with pytest.raises(ConfigError, match=r"`trainer\.iterations` was 12 and is now 5"):
        quick_fit(settings={"trainer.iterations": 5}, out=folder, resume=True)


@pytest.fixture
def trained(monkeypatch) -> list[str]:
    """The jobs that are trained, as they are."""
    done, train = [], Trials._train

    def note(self, problem, job):
        run = train(self, problem, job)
        if run is not None:
            done.append(describe(problem.recipe.structure) + problem.recipe.start.kind)
        return run

    monkeypatch.setattr(Trials, "_train", note)
    return done


def test_a_finished_search_is_read_and_not_trained_again(whole, trained):
    quick_fit(out=whole[2], resume=True)
    assert not trained


@pytest.mark.parametrize("stop_at", [1, 7, "final"])
def test_an_interrupted_search_repeats_no_finished_trial(whole, stop_at, trained, tmp_path):
    def stop(update) -> None:
        at_final = stop_at == "final" and "fold" not in update.note
        if update.status == "running" and (at_final or update.step == stop_at) and not stopped:
            stopped.append(update.step)
            signal.raise_signal(signal.SIGINT)

    stopped: list[int] = []
    first = quick_fit(progress=stop, out=tmp_path)
    assert stopped and first.status == "interrupted" and "Resume to go on, bit for bit" in first.message
    assert "the model is the best trial so far" in first.message and first.history
    assert np.isfinite(tausid.evaluate(first.model, wiener_record(120)).rmse["y"])
    finished = len(trained)
    assert finished >= stopped[0]
    again = quick_fit(out=tmp_path, resume=True)
    assert again.status == "completed" and same(again.model, whole[0].model)
    assert (again.folds, again.trust) == (whole[0].folds, whole[0].trust)
    assert len(trained) == whole[1][-1].step  # all of them, once


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_does_not_change_a_bit(whole, workers, monkeypatch):
    monkeypatch.setattr(trials, "usable_cores", lambda: workers)
    result = quick_fit()
    assert same(result.model, whole[0].model) and result.trust == whole[0].trust


@pytest.fixture
def in_processes(monkeypatch) -> None:
    """Jobs are done by two processes, however small they are."""
    monkeypatch.setattr(trials, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(trials, "usable_cores", lambda: 2)


def test_processes_give_the_same_bits_as_threads_and_none_is_left(whole, in_processes):
    said: list = []
    result = quick_fit(progress=said.append)
    assert same(result.model, whole[0].model) and result.trust == whole[0].trust
    assert said[-1].step == whole[1][-1].step
    deadline = time.monotonic() + 10.0
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()


def test_a_process_that_dies_costs_nothing(whole, in_processes, monkeypatch):
    submit, killed = LocalWorkers.submit, []

    def kill_first(self, *arguments):
        future = submit(self, *arguments)
        if not killed:
            killed.extend(multiprocessing.active_children())
            killed[0].kill()
        return future

    monkeypatch.setattr(LocalWorkers, "submit", kill_first)
    assert same(quick_fit().model, whole[0].model) and killed


def test_ctrl_c_ends_processes_and_a_resumed_search_is_the_same(whole, in_processes, tmp_path):
    pressed: list[float] = []

    def press(update) -> None:
        if update.step == 3 and not pressed:
            pressed.append(time.monotonic())
            signal.raise_signal(signal.SIGINT)

    result = quick_fit(progress=press, out=tmp_path)
    assert result.status == "interrupted" and time.monotonic() - pressed[0] < 5.0  # a second on an idle machine
    assert same(quick_fit(out=tmp_path, resume=True).model, whole[0].model)


def test_a_program_needs_no_guard_for_processes(tmp_path):
    """Processes do not import the program that fits: it would fit again in each of them."""
    program = tmp_path / "program.py"
    program.write_text(
        "import tausid\n"
        "from tausid.training import trials\n"
        "trials.WORTH_PROCESSES, trials.usable_cores = 0, lambda: 2\n"
        "print('begin')\n"
        "data = tausid.datasets.simulate_tanks(samples=200, seed=0)\n"
        "settings = {'structure.hidden': (2,), 'trainer.iterations': 2, 'holdout': tausid.Folds(2)}\n"
        "print(tausid.fit(data.train, seed=0, nx=1, settings=settings, progress=None).status)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["begin", "completed"] and not done.stderr


def test_another_seed_gives_another_model(whole):
    assert not same(quick_fit(seed=1).model, whole[0].model) or is_linear(whole[0].recipe)


def test_ctrl_c_ends_a_search_within_a_second(monkeypatch):
    """Of long trainings no more than the iterations at hand are finished."""
    pressed: list[float] = []
    count, iterate = [0], trials.iterate

    def slow(*arguments):
        time.sleep(0.02)
        count[0] += 1
        if count[0] == 5:
            pressed.append(time.monotonic())
            signal.raise_signal(signal.SIGINT)
        return iterate(*arguments)

    monkeypatch.setattr(trials, "iterate", slow)
    monkeypatch.setattr("tausid.training.levenberg_marquardt.iterate", slow)
    settings = {"trainer.iterations": 10_000, "holdout": Folds(4)}
    result = quick_fit(wiener_record(2000), settings)
    assert result.status == "interrupted"
    # Each of a few random starts takes one iteration before the next look.
    assert count[0] <= 5 + 4 * trials.usable_cores()
    assert time.monotonic() - pressed[0] < 5.0  # a second on an idle machine


def test_a_linear_plant_gives_the_linear_model():
    result = quick_fit(oscillator_record(300, noise=0.05), {"trainer.iterations": 6})
    assert is_linear(result.recipe) and "linear" in result.message
    model = result.model.state_space
    assert model.f.nonlinear == model.g.nonlinear == ((), (), None)
    fresh = oscillator_record(200, seed=4, noise=0.05)
    assert tausid.evaluate(result.model, fresh).rmse["y"] < 1.1 * 0.05  # the noise


def test_where_members_disagree_the_linear_model_is_the_floor(monkeypatch):
    def far(panel, members, others) -> Consensus:
        return Consensus(np.full(len(members), 10.0))

    monkeypatch.setattr(Panel, "compare", far)
    monkeypatch.setattr(search, "BETTER", np.inf)  # so that the linear model does not win before
    monkeypatch.setattr(search, "_finalists", lambda trials, ranking: [r for r in ranking if not is_linear(r)][:1])
    result = quick_fit()
    assert is_linear(result.recipe) and result.trust.distance == 10.0
    assert result.trust.held_out == result.trust.linear
    assert np.isfinite(tausid.evaluate(result.model, wiener_record(120)).rmse["y"])


@pytest.mark.parametrize(("departure", "linear"), [(0.01, True), (10.0, False)])
def test_what_members_add_to_the_linear_model_must_be_agreed_upon(departure, linear, monkeypatch):
    def apart(panel, members, others) -> Consensus:
        assert others  # the linear model, fold by fold
        return Consensus(np.full(len(members), 0.1), departure)

    monkeypatch.setattr(Panel, "compare", apart)
    monkeypatch.setattr(search, "_finalists", lambda trials, ranking: [r for r in ranking if not is_linear(r)][:1])
    result = quick_fit()
    assert result.trust.linear / 11 < result.trust.held_out  # not so good that a doubt of ten does not matter
    assert is_linear(result.recipe) == linear
    assert result.trust.doubt == (pytest.approx(10.0) if linear else None)
    assert ("sets them apart from this linear model" in result.message) == linear


def test_ctrl_c_while_members_are_compared_ends_as_interrupted(monkeypatch):
    def far(panel, members, others) -> Consensus:
        signal.raise_signal(signal.SIGINT)
        return Consensus(np.full(len(members), 10.0))

    monkeypatch.setattr(Panel, "compare", far)
    monkeypatch.setattr(search, "_finalists", lambda trials, ranking: [r for r in ranking if not is_linear(r)][:1])
    assert quick_fit().status == "interrupted"


def test_a_final_fit_in_a_worse_minimum_than_the_folds_begins_once_more_from_one():
    task = make_task(wiener_record(300), {"holdout": Folds(3)})
    _, candidate, *_ = first_candidates(task)

    class Worse(Trials):
        """The final fit has three times the training error of its folds, the second of which is the best."""

        def _do(self, job: Job) -> Trial:
            error = 0.5 if job.begin is not None else 3.0 if job.fold is None else 0.9 if job.fold == 1 else 1.0
            return Trial(FoldCurve((0,), (error,), 10, 0.1, (error**2,)), task.problem.initial_model)

    tried = Worse(task, quiet())
    tried.race([candidate])
    first = Job(candidate, None, 0, 5, 1.0)
    tried.run([first])
    assert search._again_from_folds(tried, [first]) == [dataclasses.replace(first, begin=1)]
    good = Job(candidate, None, 0, 5, 9.0)  # the folds' loss was as large
    tried.run([good])
    assert search._again_from_folds(tried, [good]) == [good]


def test_a_fit_that_begins_from_a_fold_begins_with_its_model():
    task = make_task(wiener_record(300), {"holdout": Folds(2)})
    _, candidate, *_ = first_candidates(task)
    tried = Trials(task, quiet())
    tried.run([Job(candidate, 0)])
    job = Job(candidate, None, 0, 1, begin=0)
    tried.run([job])
    at_start = full_error(tried.problem(job)).begin(tried.model(Job(candidate, 0)).state_space, np.zeros((1, 2))).cost
    assert tried.done[job].curve.losses[0] == pytest.approx(at_start, rel=1e-2)  # the initial state moves, too


def least_but(job: Job) -> float:
    """The risk of a fit: the least where it is that of the first fold."""
    return 0.5 if job.fold == 0 else 1e3


def test_fits_that_went_astray_give_way_to_that_of_the_least_risk(monkeypatch):
    monkeypatch.setattr(search, "_sound", lambda *arguments: [])
    monkeypatch.setattr(search, "_risk", lambda trials, job: least_but(job))
    monkeypatch.setattr(search, "_untrusted", lambda *arguments: False)
    monkeypatch.setattr(search, "_finalists", lambda trials, ranking: [r for r in ranking if not is_linear(r)][:1])
    chosen: list[Job] = []
    agree = search._agree

    def watched(task, trials, sound) -> search.Found:
        chosen.extend(sound)
        return agree(task, trials, sound)

    monkeypatch.setattr(search, "_agree", watched)
    result = quick_fit()
    assert [job.fold for job in chosen] == [0]
    assert result.status == "completed" and result.trust.members > 2  # those that went astray count for the agreement
    assert np.isfinite(tausid.evaluate(result.model, wiener_record(120)).rmse["y"])


@pytest.mark.parametrize("risk", [1e3, 0.0])
def test_where_the_best_candidate_goes_astray_the_next_one_is_fitted_if_it_may_be_better(risk, monkeypatch):
    fitted: list[Recipe] = []
    final_fits = search._final_fits

    def watched(trials, finalists, count) -> list[Job]:
        fitted.extend(finalists)
        return final_fits(trials, finalists, count)

    monkeypatch.setattr(search, "_final_fits", watched)
    monkeypatch.setattr(search, "_finalists", lambda trials, ranking: ranking[:1])
    monkeypatch.setattr(search, "_sound", lambda trials, fits: [job for job in fits if job.recipe != fitted[0]])
    monkeypatch.setattr(search, "_risk", lambda trials, job: risk if job.recipe == fitted[0] else risk / 2)
    monkeypatch.setattr(search, "_untrusted", lambda *arguments: False)
    result = quick_fit()
    assert result.status == "completed" and len(fitted) == (2 if risk else 1)
    assert result.recipe == fitted[-1]


def curves(*errors: float) -> FoldCurves:
    return pool([FoldCurve((0, 1), (9.0, error), 10, 1.0) for error in errors])


def test_a_nonlinear_model_must_be_better_in_most_folds():
    linear = curves(0.2, 0.2, 0.2, 0.2)
    assert _clearly_better(curves(0.1, 0.1, 0.1, 0.3), linear)
    assert _clearly_better(curves(0.17, 0.18, 0.17, 0.18), linear)  # by little, but in every fold
    assert not _clearly_better(curves(0.185, 0.184, 0.185, 0.185), linear)  # less than 10 %
    assert not _clearly_better(curves(0.02, 0.03, 0.1, 0.5), linear)  # by much, but far worse in one of them
    assert not _clearly_better(curves(0.01, 0.1, 0.21, 0.21), linear)  # by much, but in half of them
    uneven = curves(0.6, 0.2, 0.2, 0.2)  # the first fold shows what the others do not
    assert _clearly_better(curves(0.7, 0.1, 0.1, 0.1), uneven)  # as far off there, and better elsewhere
    assert not _clearly_better(curves(0.95, 0.05, 0.05, 0.05), uneven)  # half as much again
    assert _clearly_better(curves(0.17), curves(0.2))
    assert _clearly_better(curves(0.19), curves(np.inf))


def test_an_ensemble_is_of_the_same_search(whole):
    result = quick_fit(ensemble=3)
    assert isinstance(result.model, tausid.EnsembleModel)
    assert 1 <= len(result.model.members) <= 3
    assert same(result.model.members[0], whole[0].model)  # the nearest to the median is the single model
    assert result.trust == whole[0].trust or len(result.model.members) == 3
    assert "nearest to the median of all" in result.message
    one = quick_fit(ensemble=3, keep=1)
    assert len(one.model.members) == 1 and same(one.model.members[0], whole[0].model)


def test_trials_come_back_from_disk(tmp_path, model):
    problem = make_task().problem
    arrays = named_arrays(model.state_space)
    stored = {
        "one": StoredTrial(FoldCurve((0, 5), (2.0, np.inf), 10, 1.0, (0.1, 0.2)), arrays),
        "two": StoredTrial(FoldCurve((0,), (np.inf,), 1, 0.5, (0.3,)), {}),
    }
    save_trials(tmp_path, problem, stored)
    found = load_trials(tmp_path, problem)
    assert {key: trial.curve for key, trial in found.items()} == {key: trial.curve for key, trial in stored.items()}
    assert not found["two"].arrays
    assert all(np.array_equal(found["one"].arrays[name], array) for name, array in arrays.items())


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        (((0, 5), (2.0,), 1, 0.5, (0.3, 0.2)), "an error and a loss for each of its steps"),
        (((0,), (2.0,), 1, 0.5, ()), "an error and a loss for each of its steps"),
        (((), (), 1, 0.5, ()), "length >= 1"),
        (((0, 5, 4), (2.0,) * 3, 1, 0.5, (0.3,) * 3), "must count from 0 up"),
        (((-1,), (2.0,), 1, 0.5, (0.3,)), ">= 0"),
        (((0,), (2.0,), 0, 0.5, (0.3,)), ">= 1"),
        (((0,), (2.0,), 2**70, 0.5, (0.3,)), "out of range|<= "),
    ],
)
def test_trials_that_were_tampered_with_are_refused(curve, reason, tmp_path):
    problem = make_task().problem
    save_trials(tmp_path, problem, {"one": StoredTrial(FoldCurve(*curve), {})})
    with pytest.raises(StorageError, match=f"must be as tausid writes it.*({reason})"):
        load_trials(tmp_path, problem)


def rectified(samples: int, seed: int) -> Record:
    """The oscillator behind a sensor without sign, `y = |x1|`: an even function, of which a line says nothing."""
    linear = oscillator_record(samples, seed=seed)
    noise = 0.02 * np.random.default_rng(seed + 1).standard_normal(linear.y.shape)
    return Record.from_arrays(linear.u, np.abs(linear.y) + noise, ts=0.5, name="rectified")


def test_an_even_output_is_found_from_random_dynamics():
    train, test = rectified(600, 0), rectified(300, 7)
    structure = tausid.Structure(nx=2, hidden=(8,), activation="tanh", nonlinear_g=True, bias=True)
    parts = {"structure": structure, "trainer": LevenbergMarquardt(iterations=60), "holdout": None, "search": "fixed"}
    found = tausid.fit(train, seed=0, tau=2.0, start=RandomDynamics(count=12), progress=None, **parts)
    own = tausid.evaluate(found.model, test).nrmse["y"]
    linear = tausid.estimate_bla(train).simulate(test)
    assert np.sqrt(np.mean((linear - test.y) ** 2)) > 0.7 * test.y.std()
    assert own < 0.25


def test_random_dynamics_are_stable_around_tau():
    task = make_task(settings={"structure.nx": 5, "start": RandomDynamics(), "structure.network": "mlp"}, tau=2.0)
    starts = task.random_starts(task.problem, 6)
    assert len(starts) == 6 and starts[0] is task.problem.first_weights
    for start in starts:
        rates = np.linalg.eigvals(start.A)
        assert (rates.real < 0).all() and (np.abs(rates) < 10).all() and (np.abs(rates.real) > 0.03).all()
        z = np.random.default_rng(0).normal(size=(9, 6))
        np.testing.assert_allclose(start.f(z), z @ start.f.linear.T, atol=1e-12)  # f is linear
    assert len({start.A.tobytes() for start in starts}) == 6
    # Where the input moves, so does the output.
    u = multisine(200, lines=20, seed=0)
    record = Record.from_arrays(u, np.zeros_like(u) + u, ts=0.5)
    model = task.problem.initial_model
    assert model.simulate(record, x0=np.zeros(5)).y.std() > 0.01 * model.scaling.y_std[0]
