"""Levenberg-Marquardt: its normal equations against a dense Jacobian, bad starts; trials, folds, resuming."""

from __future__ import annotations

import dataclasses
import itertools
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problems import oscillator_record, wiener_record
from tausid.training.normal_equations import Errors, FullError, Normal
from test_physics import Lag, lag_record

import tausid
from tausid import ConfigError, DataError, Record, recipes
from tausid.model.tau import Tau
from tausid.training import levenberg_marquardt, normal_equations, trials
from tausid.training.checkpoint import load_trials, save_trials
from tausid.training.driver import Session
from tausid.training.fitting import change_recipe
from tausid.training.holdout import Split, cut_folds, stretch
from tausid.training.levenberg_marquardt import Point, expectation, first_guess, fit_initial_states, iterate, objective
from tausid.training.outcome import make_result
from tausid.training.parts import Folds, Given, LastShare, PaperTestHalf
from tausid.training.problem import Problem
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task, _resolve_states_of_tau, resolve, resolve_holdout
from tausid.training.result import FoldCurve, FoldCurves, HistoryRow
from tausid.training.run_state import RunState, Status
from tausid.training.search import Choice, choose
from tausid.training.trials import BETTER, Trials, describe, endures, pool, trial_key

# A network that bends from the start, so that every part of the Jacobian is used.
BENT = {"structure.nx": 2, "structure.hidden": (3,), "structure.activation": "tanh", "start.nonlinear": "random",
        "start.weight_range": 0.5, "holdout": "none"}  # fmt: skip
# What ends within seconds.
SMALL = {"structure.hidden": (3,), "structure.nonlinear_g": True, "structure.network": "mlp",
         "structure.activation": "leaky_relu", "trainer.iterations": 3, "holdout": Folds(2)}  # fmt: skip


def quick_fit(record: Record, settings: dict | None = None, **changes) -> tausid.FitResult:
    arguments = {"seed": 0, "nx": 2, "progress": None, **changes}
    return tausid.fit(record, settings={**SMALL, **(settings or {})}, **arguments)


def make_task(
    records: list[Record], settings: dict | None = None, *, tau: float | str | Tau = 2.0, physics: Lag | None = None
) -> Task:
    recipe = recipes.default() if physics is None else recipes.greybox()
    return resolve(recipe.change({**BENT, **(settings or {})}), records, tau=tau, seed=0, plant=physics)


def make_problem(records: list[Record], settings: dict | None = None, **arguments) -> Problem:
    return make_task(records, settings, **arguments).problem


def with_validation(problem: Problem, record: Record) -> Problem:
    return dataclasses.replace(problem, split=Split(problem.split.train, (record,)))


def quiet(folder: Path | None = None) -> Session:
    return Session(folder, lambda update: None, threading.Event())


def with_missing(record: Record, *, every: int) -> Record:
    y = np.array(record.y)
    y[::every] = np.nan
    return dataclasses.replace(record, y=y)


def two_outputs(samples: int, *, seed: int = 0) -> Record:
    record = wiener_record(samples, seed=seed)
    return Record.from_arrays(record.u, np.hstack([record.y, record.y**2]), ts=0.5, output_names=["a", "b"], name="two")


CASES: dict[str, Callable[[], Problem]] = {
    "one record": lambda: make_problem([wiener_record(30)]),
    "records of several lengths with holes": lambda: make_problem(
        [with_missing(wiener_record(30), every=7), wiener_record(21, seed=2)],
        {"trainer.weight_decay": 0.1, "trainer.nonlinear_decay": 0.2},
    ),
    "weighted outputs": lambda: make_problem(
        [two_outputs(30), two_outputs(20, seed=1)], {"trainer.output_weights": (3.0, 1.0)}
    ),
    "limited outputs": lambda: make_problem([wiener_record(30)], {"structure.output_limits": (-0.3, 0.5)}),
    "first-order hold, trained tau": lambda: make_problem(
        [wiener_record(30)],
        {"integration.hold": "first", "integration.stepper": "heun", "integration.substeps": 2},
        tau=Tau(2.0, trainable=True),
    ),
    "corrected equations": lambda: make_problem(
        [lag_record(30)], {"structure.correction": "network", "structure.nx": 1}, physics=Lag()
    ),
}


def residuals(error: FullError, theta: jax.Array, x0: jax.Array, unravel) -> jax.Array:
    """What is squared and summed in the objective, from the whole simulation at once."""
    weights = unravel(theta)
    model = error.model(weights)
    y_hat = error.limit(model.output(error.states(weights, x0), error.windows.u))
    measured = error.windows.measured
    scale = jnp.sqrt(error.output_weights / jnp.sum(measured)) * measured
    missed = jnp.where(measured, y_hat - error.windows.y, 0.0)
    return jnp.concatenate([(scale * missed).ravel(), jnp.sqrt(error.decay(weights)) * theta])


# The least chunks are of eight samples: states and sensitivities are carried from one to the next.
@pytest.mark.parametrize(("name", "chunk"), [("one record", normal_equations.CHUNK), *((name, 1) for name in CASES)])
def test_the_normal_equations_are_those_of_the_dense_jacobian(name, chunk, monkeypatch):
    monkeypatch.setattr(normal_equations, "CHUNK", chunk)
    problem = CASES[name]()
    error = objective(problem)
    with jax.enable_x64(True):
        weights, x0 = first_guess(problem, problem.first_weights)
        theta, unravel = ravel_pytree(weights)
        # Not compiled as a whole: CHUNK is no key.
        found = normal_equations.normal_equations.__wrapped__(error, weights, x0)
        J, Jx = jax.jacfwd(lambda t, x: residuals(error, t, x, unravel), (0, 1))(theta, x0)
        r = residuals(error, theta, x0, unravel)
        expected = Normal(
            H=J.T @ J,
            G=jnp.einsum("np,nbq->bpq", J, Jx),
            K=jnp.einsum("nbp,nbq->bpq", Jx, Jx),
            h=J.T @ r,
            k=jnp.einsum("nbq,n->bq", Jx, r),
        )
        total, squares = float(error(weights, x0).objective), float(r @ r)
    assert total == pytest.approx(squares, rel=1e-12)
    for part in ("H", "G", "K", "h", "k"):
        a, b = np.asarray(getattr(found, part)), np.asarray(getattr(expected, part))
        # Double precision over some hundred samples.
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10 * np.abs(b).max(), err_msg=part)
    assert np.abs(np.asarray(found.h)).max() > 0


def test_the_step_is_that_of_the_dense_equations():
    rng = np.random.default_rng(0)
    P, B, nx, n = 5, 3, 2, 40
    J = np.zeros((B, n, P + B * nx))
    for b in range(B):  # the errors of a record depend on its own initial state only
        J[b, :, :P] = rng.standard_normal((n, P))
        J[b, :, P + b * nx : P + (b + 1) * nx] = rng.standard_normal((n, nx))
    J, r, damping = J.reshape(-1, P + B * nx), rng.standard_normal(B * n), 0.3
    full = J.T @ J
    dense = np.linalg.solve(full + damping * np.diag(np.diag(full) + normal_equations.FLOOR), -J.T @ r)
    states = [slice(P + b * nx, P + (b + 1) * nx) for b in range(B)]
    with jax.enable_x64(True):
        normal = Normal(
            H=jnp.asarray(full[:P, :P]),
            G=jnp.asarray(np.stack([full[:P, s] for s in states])),
            K=jnp.asarray(np.stack([full[s, s] for s in states])),
            h=jnp.asarray((J.T @ r)[:P]),
            k=jnp.asarray(np.stack([(J.T @ r)[s] for s in states])),
        )
        theta, x0 = normal.solve(jnp.asarray(damping))
    np.testing.assert_allclose(np.concatenate([theta, np.ravel(x0)]), dense, rtol=1e-10)


def test_steps_that_lead_to_nan_are_not_taken_and_damping_grows(monkeypatch):
    """Not a simulation but what an iteration sees of one: (w - 1)^2, and NaN from 0.3 on."""
    tried: list[float] = []

    def errors(error, weights, x0):
        tried.append(float(weights[0]))
        value = jnp.where(weights[0] < 0.3, (weights[0] - 1.0) ** 2, jnp.nan)
        return Errors(value, value)

    def equations(error, weights, x0):
        return Normal(jnp.eye(1), jnp.zeros((1, 1, 1)), jnp.eye(1)[None], weights - 1.0, jnp.zeros((1, 1)))

    monkeypatch.setattr(levenberg_marquardt, "normal_equations", equations)
    monkeypatch.setattr(levenberg_marquardt, "_errors", errors)
    problem = make_problem([wiener_record(30)])
    with jax.enable_x64(True):
        start = Point(jnp.zeros(1), jnp.zeros((1, 1)), Errors(jnp.ones(()), jnp.ones(())))
        found = iterate(objective(problem), start)
    assert float(found.weights[0]) < 0.3 and np.isfinite(float(found.errors.objective))
    assert len(tried) > 2 and tried == sorted(tried, reverse=True)  # ever shorter steps
    assert all(step >= 0.3 for step in tried[:-1]) and tried[-1] == float(found.weights[0])


@pytest.fixture(scope="module")
def linear() -> tuple[Record, tausid.FitResult]:
    """A linear model fitted to a linear plant."""
    record = oscillator_record(300, noise=0.05)
    settings = {"structure.hidden": (), "trainer.weight_decay": 0.0, "trainer.iterations": 20, "holdout": "none",
                "integration.substeps": 2}  # fmt: skip
    return record, tausid.fit(record, seed=0, nx=2, settings=settings, progress=None)


def test_a_linear_plant_reaches_the_floor_of_linear_least_squares(linear):
    record, result = linear
    floor = float(tausid.estimate_bla(record, nx=2).rmse[0])
    # The same model class and the same error; the integrator's 1e-4 is all that differs.
    assert np.sqrt(result.history[-1].loss) * record.y.std() < 1.001 * floor
    losses = [row.loss for row in result.history]
    assert all(after <= before for before, after in itertools.pairwise(losses))
    assert result.message.startswith(f"{result.steps} iteration")


def test_the_estimate_of_an_initial_state_is_that_of_linear_theory(linear):
    """A linear model: the estimate is that of Bayes for a normal expectation and white noise, in closed form."""
    model = linear[1].model
    new = oscillator_record(60, noise=0.05, seed=3)
    initial, n = model.state_space.initial, 20
    m, R = np.asarray(initial.expected, float), np.asarray(initial.tightness, float)

    def outputs(x0):
        return model.scaling.normalize_y(model.simulate(new, x0=x0).y)[:n].ravel()

    at_mean = outputs(m)
    slopes = np.column_stack([outputs(m + e) - at_mean for e in np.eye(2)])
    missed = model.scaling.normalize_y(new.y)[:n].ravel() - at_mean
    expected = m + np.linalg.solve(slopes.T @ slopes + R.T @ R, slopes.T @ missed)
    found = model.simulate(new)
    # Single precision, and tolerances of 1e-6 in the search.
    np.testing.assert_allclose(found.x[0], expected, atol=1e-4)
    assert found.initial_state == "free" and np.linalg.norm(R) > 0


def test_what_is_expected_of_states_is_their_mean_and_covariance():
    rng = np.random.default_rng(0)
    mixed = np.array([[2.0, 0.0], [1.5, 0.5]])
    states = rng.standard_normal((5000, 2)) @ mixed.T + [1.0, -3.0]
    mean, tightness = expectation(states, 0.1)
    np.testing.assert_allclose(mean, states.mean(axis=0))
    np.testing.assert_allclose(tightness.T @ tightness, 0.01 * np.linalg.inv(np.cov(states.T, bias=True)), rtol=1e-8)
    resting = np.column_stack([states, np.full(5000, 7.0)])  # a state that never moved
    assert np.abs(expectation(resting, 0.1)[1][:, 2]).max() == 0.0


def test_initial_states_move_before_the_weights_do():
    problem = make_problem([wiener_record(60)])
    error = objective(problem)
    with jax.enable_x64(True):
        weights, x0 = first_guess(problem, problem.first_weights)
        found = fit_initial_states(error, weights, x0 + 3.0)
        before, after = (float(error(weights, x).objective) for x in (x0 + 3.0, found))
        equations = normal_equations.normal_equations(error, weights, found)
    assert after < 0.5 * before
    assert np.abs(np.asarray(equations.k)).max() < 1e-4  # the slope is gone: nothing is left to gain


# What is left open


def test_held_out_data_choose_what_is_left_open():
    said: list = []
    result = quick_fit(wiener_record(120), {"trainer.iterations": 2}, nx="auto", progress=said.append)
    lowest: dict[str, list[float]] = {}
    for update in said[: len(said) - result.steps]:  # the last ones are those of the fit on everything
        choice, fold = re.fullmatch(r"(.*), fold (\d) of 2, iteration \d", update.note).groups()
        lowest.setdefault(choice, [np.inf, np.inf])[int(fold) - 1] = update.best
    assert describe(result.recipe.structure) in lowest
    # Of what was tried none is much better in all folds than what was chosen; hopeless ones saw only the first.
    chosen = np.array(lowest[describe(result.recipe.structure)])
    assert not any((np.array(found) < BETTER * chosen).all() for found in lowest.values())
    assert len({choice.split()[0] for choice in lowest}) > 1  # numbers of states


@pytest.fixture(scope="module")
def alone() -> tausid.FitResult:
    """A fit for which nothing is held out."""
    return quick_fit(
        wiener_record(100),
        {"structure.network": "auto", "structure.activation": "auto", "structure.nonlinear_g": "auto",
         "trainer.iterations": 1, "holdout": "none"},
    )  # fmt: skip


def test_what_nothing_decides_has_a_rule(alone):
    structure = alone.recipe.structure
    assert (structure.network, structure.activation, structure.nonlinear_g) == ("mlp", "leaky_relu", True)
    assert np.abs(alone.model.state_space.g.readout).max() > 0.0


@pytest.fixture(scope="module")
def validated() -> tuple[dict[str, tausid.FitResult], list]:
    """Fits with validation records, by the activation that was asked for, and what the last of them said."""
    said: list = []
    fits = {
        name: quick_fit(
            wiener_record(120),
            {"structure.activation": name, "structure.nonlinear_g": False, "holdout": "auto"},
            validation=wiener_record(80, seed=5),
            progress=said.append if name == "auto" else None,
        )
        for name in ("leaky_relu", "tanh", "auto")
    }
    return fits, said


def test_validation_records_choose_what_is_left_open(validated):
    fits, _ = validated
    lowest = {name: min(row.validation for row in fit.history) for name, fit in fits.items()}
    better = lowest["tanh"] < BETTER * lowest["leaky_relu"]
    assert fits["auto"].recipe.structure.activation == ("tanh" if better else "leaky_relu")


def test_validation_records_take_the_place_of_folds(validated):
    fits, said = validated
    result = fits["auto"]
    assert (result.recipe.holdout, result.folds) == (Given(), None)
    scores = [row.validation for row in result.history]
    assert result.best_step == result.history[int(np.argmin(scores))].step
    assert f"iterations, of which validation chose number {result.best_step}." in result.message
    assert [u.step for u in said] == sorted(u.step for u in said) and said[-1].step == said[-1].max_steps


def test_a_linear_g_has_no_hidden_layers(validated):
    for result in validated[0].values():
        assert result.model.state_space.g.nonlinear == ((), (), None)


@pytest.fixture(scope="module")
def open_task() -> Task:
    """A task that leaves all to folds."""
    return resolve(recipes.default(hidden=(3,)), [wiener_record(200)], tau=2.0, seed=0)


Kind = tuple[int, str, bool]  # states, activation or `polynomial`, whether g is nonlinear


def choose_of(
    task: Task, folder: Path, errors: dict[Kind, float], given: dict | None = None, folds: int = 2, **start
) -> Choice:
    """What is chosen where all trials are on disk already; what is not `given` is open."""
    first = {"network": "mlp", "activation": "leaky_relu", "nonlinear_g": False, **(given or {}), **start}
    recipe = dataclasses.replace(task.problem.recipe, holdout=Folds(folds))
    problem = dataclasses.replace(task.problem, recipe=recipe.with_structure(**first))
    curves = {}
    for (nx, kind, bent), error in errors.items():
        kinds = ("leaky_relu", "tanh") if kind == "polynomial" else (kind,)
        network = "polynomial" if kind == "polynomial" else "mlp"
        for k, activation in itertools.product(range(folds), kinds):
            tried = recipe.structure, {"nx": nx, "network": network, "activation": activation, "nonlinear_g": bent}
            curves[trial_key(dataclasses.replace(tried[0], **tried[1]), k)] = FoldCurve((1,), (error,), 10, 2.0)
    save_trials(folder, problem, curves)
    return choose(dataclasses.replace(task, asked=task.asked.with_structure(**(given or {})), problem=problem),
                  quiet(folder))  # fmt: skip


def test_structures_are_tried_one_step_away_from_the_best(open_task, tmp_path):
    errors = {
        (2, "leaky_relu", False): 1.0,
        (1, "leaky_relu", False): 2.0,
        (3, "leaky_relu", False): 0.5,
        (4, "leaky_relu", False): 0.495,
        (3, "tanh", False): 0.4,
        (2, "tanh", False): 0.7,
        (3, "polynomial", False): 0.6,
        (2, "polynomial", False): 0.6,
        (3, "tanh", True): 0.21,
    }
    choice = choose_of(open_task, tmp_path, errors, nx=2)
    # Four states gain less than two per cent, and a nonlinear g less than half: what was tried first stays.
    structure = choice.recipe.structure
    assert (structure.nx, structure.activation, structure.nonlinear_g) == (3, "tanh", False)
    assert choice.curves.pooled == pytest.approx((0.4,))
    # Two folds each, but for four structures whose first fold leaves them behind.
    assert (choice.tried, choice.seconds) == (2 * len(errors) - 4, 2.0 * (2 * len(errors) - 4))


def test_a_nonlinear_g_is_taken_where_it_halves_the_error(open_task, tmp_path):
    errors = {(1, "tanh", False): 1.0, (1, "tanh", True): 0.49}
    given = {"nx": 1, "activation": "tanh", "network": "mlp"}
    assert choose_of(open_task, tmp_path, errors, given).recipe.structure.nonlinear_g is True


def test_another_kind_of_network_may_do_with_one_state_less(open_task, tmp_path):
    errors = {
        (3, "leaky_relu", False): 1.0,
        (1, "leaky_relu", False): 2.0,
        (2, "leaky_relu", False): 1.5,
        (4, "leaky_relu", False): 1.0,
        (3, "tanh", False): 1.1,
        (2, "tanh", False): 0.9,
    }
    choice = choose_of(open_task, tmp_path, errors, {"network": "mlp", "nonlinear_g": False}, nx=3)
    assert (choice.recipe.structure.nx, choice.recipe.structure.activation) == (2, "tanh")


def test_one_state_is_not_tried_twice(open_task, tmp_path):
    errors = {(1, "leaky_relu", False): 1.0, (2, "leaky_relu", False): 1.0, (1, "tanh", False): 1.1}
    choice = choose_of(open_task, tmp_path, errors, {"network": "mlp", "nonlinear_g": False}, nx=1)
    assert choice.tried == 2 * len(errors)


def test_all_fewer_states_are_tried_and_more_only_where_none_of_them_helps(open_task, tmp_path):
    errors = {5: 1.0, 1: 2.0, 2: 0.3, 3: 0.35, 4: 0.35}  # not monotonic; six states are not in the table
    given = {"activation": "tanh", "network": "mlp", "nonlinear_g": False}
    choice = choose_of(open_task, tmp_path, {(n, "tanh", False): error for n, error in errors.items()}, given, nx=5)
    assert choice.recipe.structure.nx == 2
    assert choice.tried == 2 * len(errors) - 1  # the first fold is enough for one state


def test_a_structure_that_runs_away_with_larger_inputs_does_not_endure():
    # dx/dt = -x + x^3 + u stays near zero for |u| < 0.38 and runs away beyond: a polynomial can learn this exactly.
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-0.35, 0.35, 8), 50)[:, None]
    x = np.zeros(len(u))
    for k in range(len(u) - 1):
        x[k + 1] = x[k] + 0.1 * (-x[k] + x[k] ** 3 + u[k, 0])
    record = Record.from_arrays(u, x[:, None] + 1e-3 * rng.standard_normal(u.shape), ts=0.1)
    settings = {"structure.network": "polynomial", "structure.nonlinear_g": False, "trainer.iterations": 15}
    result = quick_fit(record, settings, nx=1)
    assert result.status == "completed"  # it was asked for
    model = result.model
    assert model.simulate(record).status == "ok" and not endures(model, [record])
    tame = eqx.tree_at(lambda m: m.f.coefficients, model.state_space, replace_fn=jnp.zeros_like)
    assert endures(dataclasses.replace(model, state_space=tame), [record])


def test_the_order_is_that_of_the_linear_approximation():
    record = oscillator_record(200, noise=0.02)
    problem = make_problem([record], {"structure.nx": "auto"})
    order = tausid.estimate_bla(record, nx="auto").order
    assert problem.recipe.structure.nx == order == problem.initial_model.state_space.nx


# Folds


def test_a_fold_never_trains_on_the_outputs_it_is_scored_on():
    record = wiener_record(120)
    y = np.array(record.y)
    y[60:] += 5.0  # the second stretch
    ends = []
    for data in (record, dataclasses.replace(record, y=y)):
        fold = cut_folds(Split((data,), ()), recipes.default().change({"holdout": Folds(2)}))[1]
        assert np.array_equal(fold.validation[0].y, data.y[60:])
        problem = make_problem(list(fold.train))
        run = levenberg_marquardt.init(problem)
        for _ in range(3):
            run = levenberg_marquardt.step(problem, run)
        ends.append(run.inner)
    assert eqx.tree_equal(ends[0].weights, ends[1].weights)
    assert float(ends[0].errors.outputs) == float(ends[1].errors.outputs)


class StandingStill(Task):
    """A task that cannot be trained on a part of its records."""

    def start(self, *arguments, **options) -> Problem:
        raise DataError("its input stands still.")


def test_a_fold_that_cannot_be_trained_says_so():
    def trials_with(holdout, problem: Problem) -> tuple[Trials, Recipe]:
        problem = dataclasses.replace(
            problem, recipe=dataclasses.replace(problem.recipe, holdout=holdout), linear_order=None
        )
        return Trials(StandingStill(problem.recipe, problem, 2.0, None), quiet(), 1), problem.recipe

    problem = with_validation(make_problem([wiener_record(120)]), wiener_record(60))
    folded, recipe = trials_with(Folds(2), problem)
    with pytest.raises(DataError, match=r"each fold must .* fold 1 of 2 with .* is not: its input .* Use fewer folds"):
        folded.of(recipe)
    # Where there is another choice already, this one is none.
    assert np.isinf(folded.of(recipe, rival=recipe).lowest)
    given, recipe = trials_with(Given(), problem)
    with pytest.raises(DataError, match=r"^its input stands still\.$"):  # validation records: there are no folds
        given.of(recipe)


def test_folds_start_as_the_fit_on_everything_does(monkeypatch):
    asked = []

    def spy(records, recipe, order=None):
        asked.append(order)
        return approximate(records, recipe, order=order)

    approximate = trials.approximate
    monkeypatch.setattr(trials, "approximate", spy)
    record = oscillator_record(200)
    order = tausid.estimate_bla(record).order
    task = make_task([record], {"structure.nx": order + 1, "holdout": Folds(2), "start.nonlinear": "zero"})
    trial = Trials(task, quiet(), 2)
    for activation, (k, split) in itertools.product(("tanh", "leaky_relu"), enumerate(trial.splits)):
        problem = trial._problem(task.problem.recipe.with_structure(activation=activation), k, split)
        assert problem.linear_order == order
        # The state that the linear approximation does not have decays with tau and touches nothing.
        np.testing.assert_array_equal(problem.initial_model.state_space.f.linear[order], [0.0] * order + [-1.0, 0.0])
    assert asked == [order, order]  # once per fold, for all structures


def test_held_out_stretches_cover_a_record_but_for_its_first_samples():
    assert [stretch(90, k, 4, 10) for k in range(4)] == [(10, 22), (22, 45), (45, 68), (68, 90)]
    assert stretch(90, 0, 4, 50) == (90 // 8, 22)  # half a stretch stays


TWO_FOLDS = recipes.default(nx=2).change({"holdout": Folds(2)})


def test_folds_hold_out_what_can_be_scored():
    long, short = wiener_record(200), wiener_record(60, seed=1)
    unmeasured = dataclasses.replace(long, y=np.where(np.arange(200)[:, None] < 100, long.y, np.nan))
    first, second = cut_folds(Split((long, short), ()), TWO_FOLDS)
    assert [len(r) for r in (*first.validation, *second.validation)] == [80, 100, 30]  # 20 samples stay, or 15 of 60
    assert np.isnan(second.train[0].y[100:]).all() and np.array_equal(second.train[0].u, long.u)
    assert len(cut_folds(Split((long, unmeasured), ()), TWO_FOLDS)[1].validation) == 1
    late = dataclasses.replace(unmeasured, y=np.where(np.arange(200)[:, None] < 20, np.nan, unmeasured.y))
    assert [len(fold.validation) for fold in cut_folds(Split((long, late), ()), TWO_FOLDS)] == [1, 1]
    with pytest.raises(ConfigError, match="folds must hold out measured outputs; none of 2 folds does, with 20"):
        cut_folds(Split((wiener_record(40),), ()), TWO_FOLDS)


def test_where_validation_records_decide_long_records_are_tried_in_part():
    long, held_out, recipe = wiener_record(3 * 4096), wiener_record(100, seed=1), recipes.default(nx=2)
    (trial,) = cut_folds(Split((long,), (held_out,)), recipe)
    assert len(trial.train[0]) == 4096 and trial.validation == (held_out,)
    assert cut_folds(Split((long,), ()), recipe) == ()


def test_records_are_tried_where_their_inputs_move():
    samples, held_out = 3 * 4096, wiener_record(100, seed=1)
    moves = np.random.default_rng(0).standard_normal((samples, 2))
    still = np.arange(samples) < 5000

    def tried(u: np.ndarray) -> tuple[int, int]:
        record = Record.from_arrays(u, moves[:, :1], ts=1.0)
        (trial,) = cut_folds(Split((record,), (held_out,)), recipes.default(nx=2))
        return int(trial.train[0].t[0]), len(trial.train[0])

    assert tried(moves) == tried(np.hstack([moves, np.ones((samples, 1))])) == (0, 4096)
    start, length = tried(np.where(still[:, None], [1.0, 0.0], moves))
    assert start >= 4800 and length == 4096
    apart = np.column_stack([np.where(np.arange(samples) < 3000, moves[:, 0], 0.0),
                             np.where(np.arange(samples) > 9000, moves[:, 1], 0.0)])  # fmt: skip
    assert tried(apart) == (0, samples)  # no stretch has both


def curve(*errors: float, scored: int = 10) -> FoldCurve:
    return FoldCurve(tuple(range(len(errors))), errors, scored, 1.0)


def test_iterations_are_chosen_by_the_pooled_error_and_divergence_counts():
    curves = pool([curve(4.0, 3.0, 1.0), curve(4.0, 1.0, 2.0, np.nan, scored=30)])
    # (3^10 1^30)^(1/40), and so on; the first fold stays at its last error.
    np.testing.assert_allclose(curves.pooled, [4.0, 3**0.25, 2**0.75, np.inf])
    assert (curves.steps, curves.chosen) == ((0, 1, 2, 3), 1)
    assert np.isinf(pool([curve(np.nan)]).lowest)


def test_a_fold_that_holds_out_what_no_other_shows_does_not_outweigh_the_rest():
    alike, apart = curve(0.2, 0.1, 0.03), curve(0.45, 0.4, 0.42)
    assert pool([alike, alike, alike, apart]).chosen == 2


def test_the_start_is_a_choice_and_what_is_as_good_as_nothing_is_not_lowered(open_task, tmp_path):
    assert pool([curve(1.0, 1.1, 1.2)]).chosen == 0
    curves = pool([curve(1.0, 5e-5, 1e-6)])
    assert curves.chosen == 1 and curves.lowest == pytest.approx(1e-6)
    choice = choose_of(open_task, tmp_path, {(2, "leaky_relu", False): 5e-5}, nx=2)  # others are not in the table
    assert choice.recipe.structure.nx == 2 and choice.tried == 2


def same(a: tausid.FitResult, b: tausid.FitResult) -> bool:
    arrays = (jax.tree.leaves(eqx.filter(r.model.state_space, eqx.is_array)) for r in (a, b))
    return all(np.array_equal(x, y) for x, y in zip(*arrays, strict=True))


def test_held_out_data_may_prefer_the_linear_model(tmp_path):
    record = oscillator_record(300)
    # Four steps per sample leave an error of integration below that of single precision.
    settings = {"structure.hidden": (3,), "trainer.iterations": 2, "holdout": Folds(2), "integration.substeps": 4}
    arguments = {"seed": 0, "settings": settings, "out": tmp_path, "progress": None}
    result = tausid.fit(record, **arguments)
    assert (result.status, result.steps, result.folds.chosen, result.history) == ("completed", 0, 0, ())
    assert result.message.startswith("held-out data prefer the linear model: no iteration is better over 2 folds")
    # As good as the folds say, to a factor for another record.
    assert tausid.evaluate(result.model, oscillator_record(100, seed=1)).nrmse["y"] < 1e-3
    assert same(tausid.fit(record, **arguments, resume=True), result)


def test_trials_come_back_from_disk(tmp_path):
    problem = make_problem([wiener_record(60)])
    tried = {trial_key(problem.recipe.structure, 0): FoldCurve((0, 5), (2.0, np.inf), 10, 1.0)}
    save_trials(tmp_path, problem, tried)
    assert load_trials(tmp_path, problem) == tried


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A fit with folds that was never stopped, with what it said, and its folder."""
    said: list = []
    folder = tmp_path_factory.mktemp("run")
    return quick_fit(wiener_record(120), progress=said.append, out=folder), said, folder


def test_folds_choose_the_iterations_and_say_how_they_go(whole):
    result, said, _ = whole
    assert result.status == "completed" and result.steps == result.folds.chosen
    assert result.message.startswith(f"{result.steps} iteration{'s' * (result.steps > 1)}, chosen by 2 folds.")
    notes = [update.note for update in said]
    assert notes[0] == "2 states, leaky_relu, f and g nonlinear, fold 1 of 2, iteration 1"
    assert notes[-1] == f"final fit, iteration {result.steps} of {result.steps}"
    assert [u.step for u in said] == sorted(u.step for u in said) and said[-1].step == said[-1].max_steps
    assert all(np.isfinite([u.loss, u.validation, u.best]).all() for u in said)
    assert [u.status for u in said] == ["running"] * (len(said) - 1) + ["completed"]
    assert [row.validation for row in result.history] == list(result.folds.pooled[1 : result.steps + 1])
    assert np.isnan([row.learning_rate for row in result.history]).all()


def test_a_finished_fit_is_read_and_not_trained_again(whole):
    result, _, folder = whole
    said: list = []
    again = quick_fit(wiener_record(120), progress=said.append, out=folder, resume=True)
    assert not said and same(again, result)
    assert again.folds == result.folds and again.seconds == result.seconds
    with pytest.raises(ConfigError, match="holds one. Resume it"):
        quick_fit(wiener_record(120), out=folder)
    with pytest.raises(ConfigError, match=r"`trainer\.iterations` was 3 and is now 4"):
        quick_fit(wiener_record(120), {"trainer.iterations": 4}, out=folder, resume=True)


@pytest.mark.parametrize("note", ["fold 1 of 2, iteration 2", "fold 2 of 2, iteration 1", "final fit, iteration 1 of"])
def test_an_interrupted_fit_goes_on_as_if_never_stopped(whole, note, tmp_path):
    assert whole[0].steps > 1  # so that the final fit can be stopped after its first iteration

    def stop(update) -> None:
        if note in update.note:
            signal.raise_signal(signal.SIGINT)

    stopped = quick_fit(wiener_record(120), progress=stop, out=tmp_path)
    assert stopped.status == "interrupted" and "resume to go on, bit for bit" in stopped.message
    assert np.isfinite(tausid.evaluate(stopped.model, wiener_record(120)).rmse["y"])
    said: list = []
    again = quick_fit(wiener_record(120), progress=said.append, out=tmp_path, resume=True)
    assert again.status == "completed" and same(again, whole[0])
    assert any("fold 1" in update.note for update in said) == note.startswith("fold 1")


def test_members_of_an_ensemble_are_ranked_by_their_folds(whole):
    result = quick_fit(wiener_record(120), ensemble=2, keep=1, workers=1)
    pooled = [min(member.folds.pooled) for member in result.members]
    assert pooled == sorted(pooled) and result.model.scores == (pooled[0],)
    for member in result.members:  # the fit of its seed, bit for bit
        by_itself = whole[0] if member.seed == 0 else quick_fit(wiener_record(120), seed=member.seed)
        assert same(by_itself, member) and by_itself.folds.pooled == member.folds.pooled
    figure = tausid.plots.plot_history(result.history)  # without a panel for rates, as there are none
    assert len(figure.axes) == 1 and figure.axes[0].get_xlabel() == "iteration"


# Tau and states


def test_one_tau_per_state_says_how_many_states_there_are():
    auto = {"structure.nx": "auto", "start": "random"}
    problem = make_problem([wiener_record(60)], auto, tau=[1.0, 2.0, 3.0])
    assert problem.recipe.structure.nx == 3 and len(problem.initial_model.tau) == 3
    windows = recipes.windows(nx="auto", na=5, nb=0)
    structure = resolve(windows, wiener_record(200), tau=[1.0, 2.0, 3.0], seed=0).problem.recipe.structure
    assert (structure.nx, structure.na, structure.nb) == (3, 6, 0)
    recipe = recipes.default()
    assert all(_resolve_states_of_tau(recipe, tau) is recipe for tau in ("trained-per-state", 2.0, Tau(2.0)))


def test_structures_with_a_tau_per_state_may_differ_in_their_states():
    task = make_task([wiener_record(60)], {"start": "random"}, tau="trained-per-state")
    for nx in (1, 3):
        recipe = task.problem.recipe.with_structure(nx=nx)
        assert len(task.start(recipe, task.problem.split).initial_model.tau) == nx


# How it ends


def ended(problem: Problem, status: str, history: tuple[HistoryRow, ...] = (), curves: FoldCurves | None = None) -> str:
    weights = problem.first_weights
    run = RunState(None, weights, len(history), weights, np.inf, 0, history, 0.0, Status(status))
    return make_result(problem, run, curves).message


def test_messages_say_what_happened():
    problem = make_problem([wiener_record(60)])
    rows = (HistoryRow(1, 0.1, np.inf, np.nan, 2.0, 0.0),)
    lost = pool([curve(1.0, 1.0), curve(np.inf, np.inf)])
    assert "diverged in fold 2 of 2, so" in ended(problem, "diverged", curves=lost)
    never = pool([curve(np.inf, 1.0), curve(1.0, np.inf)])
    assert "at each iteration" in ended(problem, "diverged", curves=never)
    assert ended(problem, "diverged", rows).startswith("every simulation of the validation records diverged, so")
    assert ended(problem, "diverged").startswith("every simulation of the whole training records diverged")
    some = pool([curve(2.0, 1.0)] * 3)
    assert "1 iteration, chosen by 3 folds." in ended(problem, "completed", rows, some)
    said = ended(with_validation(problem, wiener_record(60, seed=1)), "completed", rows)
    assert "1 iteration, and validation prefers the model that training began with." in said


def train(problem: Problem) -> RunState:
    run = levenberg_marquardt.init(problem)
    while run.status == Status.RUNNING:
        run = levenberg_marquardt.step(problem, run)
    return run


def test_no_finite_score_of_validation_records_is_a_divergence():
    beyond = wiener_record(60, seed=1)
    beyond = dataclasses.replace(beyond, u=1e20 * beyond.u)  # its cube is beyond single precision
    settings = {"structure.network": "polynomial", "start.weight_range": 0.01, "trainer.iterations": 2}
    run = train(with_validation(make_problem([wiener_record(60)], settings), beyond))
    assert run.status == "diverged" and np.isfinite(run.history[-1].loss)


class Started(Task):
    """A task whose start is always that of its problem."""

    def start(self, recipe, split, *arguments) -> Problem:
        return dataclasses.replace(self.problem, split=split)


def test_a_start_that_does_not_simulate_ends_as_diverged():
    problem = make_problem([wiener_record(60)], {"trainer.iterations": 2})
    broken = eqx.tree_at(lambda m: m.f.linear, problem.initial_model.state_space, replace_fn=lambda a: a * jnp.nan)
    problem = dataclasses.replace(problem, initial_model=dataclasses.replace(problem.initial_model, state_space=broken))
    assert train(problem).status == "diverged"
    problem = dataclasses.replace(with_validation(problem, wiener_record(60, seed=1)), linear_order=None)
    assert np.isinf(Trials(Started(problem.recipe, problem, 2.0, None), quiet(), 1).of(problem.recipe).lowest)


def test_a_fit_whose_start_does_not_simulate_says_so():
    # A thousandth of the fastest time constant per step of the clock: RK4 is far outside of its stability region.
    rng = np.random.default_rng(0)
    u = rng.standard_normal((400, 1))
    record = Record.from_arrays(u, u + 0.1 * rng.standard_normal(u.shape), ts=1.0)
    start = tausid.Random(A="-I", weight_range=1.0, bias_range=1.0, nonlinear="zero")
    result = quick_fit(record, {"trainer.iterations": 2, "holdout": "none"}, tau=1e-3, start=start)
    assert result.status == "diverged"
    assert "every simulation of the whole training records diverged" in result.message


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"structure.initial_state": "encoder", "structure.encoder": "mlp"}, "`encoder` must be 'residual'"),
        ({"structure.dae": True}, "`dae` must be false with Levenberg-Marquardt"),
        ({"start.bias_range": -1.0}, "`bias_range` must be a zero or positive number"),
        ({"structure.nx": "many"}, "`nx` must be a whole number of at least 1"),
        ({"structure.nx": 0}, "`nx` must be a whole number of at least 1"),
        ({"trainer": "lbfgs"}, "unknown trainer 'lbfgs'"),
        ({"trainer.steps": 10}, "`trainer.steps` is a setting of Adam"),
        ({"trainer.iterations": 0}, "`iterations` must be a whole number of at least 1"),
    ],
)
def test_settings_are_checked(settings, rule):
    with pytest.raises(ConfigError) as refused:
        recipes.default().change(settings)
    assert rule in str(refused.value)


def test_the_order_must_be_known_where_no_records_are():
    with pytest.raises(ConfigError, match="`nx` must be a number where there are no records; got 'auto'"):
        _ = recipes.default().structure.order


AUTONOMOUS = Record.from_arrays(np.zeros((9, 0)), np.arange(9.0), ts=1.0)


@pytest.mark.parametrize(
    ("given", "samples", "recipe", "holdout"),
    [
        ({}, 400, "default", Folds(4)),
        ({}, 100, "default", Folds(2)),
        ({}, 60, "default", None),
        ({}, 20_001, "default", LastShare()),
        ({"validation": wiener_record(60)}, 400, "default", Given()),
        ({"settings": {"holdout.share": 0.1}}, 400, "default", LastShare(0.1)),
        ({"protocol": "paper"}, 400, "default", PaperTestHalf()),
        ({"physics": "CascadedTanks"}, 400, "default", Folds(4)),
        ({"physics": "CascadedTanks", "settings": {"holdout": "none"}}, 400, "default", None),
        ({}, 0, "windows", LastShare()),
    ],
)
def test_the_default_recipe_gives_way_to_what_it_cannot_do(given, samples, recipe, holdout):
    records = [wiener_record(samples) if samples else AUTONOMOUS]
    changes = {name: value for name, value in given.items() if name != "validation"}
    found = resolve_holdout(change_recipe("default", records, **changes), records, given.get("validation"))
    assert (found.name, found.holdout) == (recipe, holdout)


def test_a_constant_channel_has_no_remedy_but_its_own():
    record = wiener_record(200)
    with pytest.raises(DataError, match=r"^input 'u' must vary .* Leave the channel out, or excite it\.$"):
        quick_fit(dataclasses.replace(record, u=np.ones_like(record.u)))


def test_an_initial_state_must_have_something_to_be_estimated_from(alone):
    record, model = wiener_record(100), alone.model
    late = dataclasses.replace(record, y=np.where(np.arange(100)[:, None] < 20, np.nan, record.y), name="late")
    for ask in (model.simulate, model.check):
        with pytest.raises(DataError, match="'late' must have measured outputs among samples 0 to 19, for the initial"):
            ask(late)
    assert model.simulate(late, x0=np.zeros(2)).status == "ok"
    # A stretch that begins so is not held out.
    gap = dataclasses.replace(record, y=np.where(np.abs(np.arange(100) - 60)[:, None] <= 10, np.nan, record.y))
    recipe = alone.recipe.change({"holdout": Folds(2)})
    assert [len(fold.validation) for fold in cut_folds(Split((wiener_record(200), gap), ()), recipe)] == [2, 1]
