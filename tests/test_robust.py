"""The robust loss: against another solver, its invariances, and records with a few samples that are no measurements."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from problems import oscillator_record, wiener_record
from scipy.optimize import least_squares as scipy_least_squares
from test_least_squares import Linear, make_problem, without_states

import tausid
from tausid import Record, recipes
from tausid.model.evaluation import evaluate
from tausid.training.full_error import full_error
from tausid.training.least_squares import Decay, begin, iterate
from tausid.training.problem import validation_score
from tausid.training.resolve import resolve
from tausid.training.robust import DEVIATION, MOST, clip_factors, reweighted


def with_spikes(record: Record, count: int = 6, seed: int = 5) -> Record:
    """The record with spikes of ten deviations of its outputs, up or down."""
    rng = np.random.default_rng(seed)
    at, y = rng.choice(np.arange(20, len(record) - 20), count, replace=False), record.y.copy()
    y[at] += 10 * y.std(axis=0) * rng.choice([-1.0, 1.0], (count, 1))
    return dataclasses.replace(record, y=y)


def robust_solution(problem: Linear, iterations: int = 60) -> np.ndarray:
    point = begin(problem, np.zeros(problem.A.shape[2]), np.zeros((1, 1)), Decay())
    for _ in range(iterations):
        point = iterate(*reweighted(problem, dataclasses.replace(point, damping=1e-6)), Decay())
    return point.theta


def test_a_linear_problem_ends_where_another_solver_does():
    """`scipy.optimize.least_squares` minimizes `sum rho(e^2 / c^2)`, with rho(z) = z up to 1 and 1 + log(z) beyond."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 4))
    b = A @ [1.0, -2.0, 0.5, 3.0] + 0.1 * rng.normal(size=300)
    b[::25] += 20.0
    theta = robust_solution(without_states(A, b))
    c = MOST * DEVIATION * np.median(np.abs(A @ theta - b))

    def rho(z: np.ndarray) -> np.ndarray:
        far, most = z > 1, np.maximum(z, 1.0)
        return np.stack([np.where(far, 1 + np.log(most), z), 1 / most, np.where(far, -1 / most**2, 0.0)])

    other = scipy_least_squares(lambda x: A @ x - b, theta + 0.05, loss=rho, f_scale=c, xtol=1e-15, ftol=1e-15)
    # Steps below 1e-4 of the cost count as none: its root, times the noise of 0.1 over the root of 300 samples.
    np.testing.assert_allclose(theta, other.x, atol=1e-4)
    plain = np.linalg.lstsq(A, b, rcond=None)[0]
    assert np.abs(theta - [1.0, -2.0, 0.5, 3.0]).max() < 0.03 < np.abs(plain - [1.0, -2.0, 0.5, 3.0]).max()


def test_another_unit_changes_nothing():
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(100, 2)), rng.standard_cauchy(100)
    np.testing.assert_allclose(robust_solution(without_states(A, 1e3 * b)), 1e3 * robust_solution(without_states(A, b)))
    errors = rng.standard_cauchy((50, 2))
    np.testing.assert_allclose(clip_factors(errors * [1e-6, 1e6]), clip_factors(errors), rtol=1e-12)


def test_normal_errors_count_as_they_are():
    factors = clip_factors(np.random.default_rng(0).normal(size=(100_000, 1)))
    assert np.mean(factors < 1) < 3 * 6.3e-5  # the share of normal errors beyond four deviations


def test_errors_are_clipped_output_by_output():
    errors = np.array([[1.0, 1.0], [-1.0, np.nan], [1.0, 1.0], [100.0, np.inf], [0.0, 0.0], [0.0, 0.0]])
    factors = clip_factors(errors)
    assert factors[3, 0] * 100 == pytest.approx(MOST * DEVIATION)
    factors[3, 0] = 1.0
    assert (factors == 1).all()  # of others, of what is not measured, and of a simulation that diverged
    assert (clip_factors(np.zeros((5, 1))) == 1).all()


def test_both_engines_take_the_same_way():
    bad, costs = with_spikes(oscillator_record(300)), {}
    for engine in ("fused", "scan"):
        problem = make_problem(bad, {"trainer.loss": "robust", "integration.engine": engine}, hidden=())
        error = full_error(problem)
        point = error.begin(problem.first_weights, np.zeros((1, 2)))
        for _ in range(3):
            point = iterate(*error.at(point), error.decay)
        squares, now = error.at(point)
        assert now.cost == pytest.approx(squares.cost(point.theta, point.x0), rel=1e-9)
        assert now.cost < 0.1 * error.squares.cost(point.theta, point.x0)
        costs[engine] = now.cost
    assert costs["fused"] == pytest.approx(costs["scan"], rel=1e-6)  # rounding, over three steps


def test_six_bad_samples_of_2000_hardly_matter():
    """Fits on clean data, and on spoiled data by squares and by the robust loss; scored on new data without noise."""
    record, new = oscillator_record(2000, noise=0.02), oscillator_record(500, seed=9)
    bad = with_spikes(record)

    def error(record: Record, loss: str) -> float:
        recipe = recipes.default(nx=2, hidden=(), network="mlp", activation="tanh", nonlinear_g=False)
        settings = {"trainer.iterations": 10, "trainer.loss": loss, "holdout": "none"}
        return evaluate(tausid.fit(record, seed=0, recipe=recipe.change(settings), progress=None).model, new).total_rmse

    clean = error(record, "squares")
    assert error(bad, "squares") > 3 * clean
    # Six of 2000 samples say nothing, and four deviations of theirs are left.
    assert error(bad, "robust") < 1.5 * clean
    # Beyond four deviations lie 6 of 100 000 normal errors.
    assert error(record, "robust") == pytest.approx(clean, rel=0.01)


def test_a_bad_sample_of_held_out_data_does_not_count():
    record = wiener_record(400)
    model, bad = make_problem(record).initial_model, with_spikes(record, 1)
    clean = validation_score(model, [record], output_weights=None)
    assert validation_score(model, [record], output_weights=None, robust=True) == pytest.approx(clean, rel=1e-6)
    assert validation_score(model, [bad], output_weights=None) > 1.5 * clean
    # Four usual errors of one sample in 350, whose squares are 5 % of those of all.
    assert validation_score(model, [bad], output_weights=None, robust=True) == pytest.approx(clean, rel=0.03)


def resolved_loss(train: Record, validation: Record | None = None, **settings: str) -> str:
    recipe = recipes.default(nx=1).change({"trainer.loss": "auto", **settings})
    return resolve(recipe, train, tau="bla", seed=0, validation=validation).problem.recipe.trainer.loss


def test_the_loss_is_robust_where_outputs_have_outliers():
    clean = wiener_record(400)
    bad = with_spikes(clean, 3)
    assert resolved_loss(clean) == "squares"
    assert resolved_loss(bad) == "robust"
    assert resolved_loss(clean, validation=bad) == "robust"
    assert resolved_loss(bad, **{"trainer.loss": "squares"}) == "squares"
    assert resolved_loss(clean, **{"trainer.loss": "robust"}) == "robust"


def test_the_message_says_so():
    quick = tausid.LevenbergMarquardt(iterations=2)
    bad = with_spikes(wiener_record(400), 3)
    robust, plain = (
        tausid.fit(r, seed=0, trainer=quick, holdout=None, progress=None) for r in (bad, wiener_record(400))
    )
    assert "The loss is robust" in robust.message and robust.recipe.trainer.loss == "robust"
    assert "robust" not in plain.message and plain.recipe.trainer.loss == "squares"
