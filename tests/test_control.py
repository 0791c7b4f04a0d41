"""Operating points, linearizations, responses, comparisons, observers: closed forms of linear models, differences."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from exports import delayed, make_ensemble, make_model
from scipy.linalg import expm, solve_discrete_are

import tausid
from tausid import ConfigError, DataError, DivergenceError, Model, Record
from tausid.control import (
    Noise,
    Observer,
    Simulator,
    compare,
    estimate_noise,
    frequency_response,
    linearize,
    linearize_over,
    operating_point,
    predict_ahead,
    smooth,
    step_response,
)
from tausid.control.moments import spread
from tausid.export import describe, interpreter
from tausid.export.interpreter import evaluate

Ls = np.array([[-0.8, 0.3, 0.0], [-0.3, -0.8, 0.2], [0.0, 0.0, -2.0]])


def linear_model(A: np.ndarray = Ls, *, delays: tuple[float, ...] = ()) -> tuple[Model, Record, tuple[np.ndarray, ...]]:
    """A model of linear f and g, and its A, B, C, D in physical units by hand."""
    model, record = make_model("leaky")
    space, scaling = model.state_space, model.scaling
    B, C, D = np.array([[0.5], [1.0], [0.7]]), np.array([[1.0, -0.4, 0.6]]), np.array([[0.2]])
    parts = {
        "f": space.f.with_readout(0 * space.f.readout), "g": space.g.with_readout(0 * space.g.readout),
    }  # fmt: skip
    f, g = replace(parts["f"], linear=np.hstack([A, B])), replace(parts["g"], linear=np.hstack([C, D]))
    own = replace(model, state_space=replace(space, f=f, g=g), delays=delays)
    tau = float(np.mean(model.tau))
    u, y = scaling.u_std, scaling.y_std[:, None]
    return own, record, (A / tau, B / tau / u, y * C, y * D / u)


def test_a_linear_model_gives_back_its_own_matrices():
    model, _, matrices = linear_model()
    found = linearize(model, x=[0.3, -2.0, 1.0], u=[5.0])
    for got, own in zip((found.A, found.B, found.C, found.D), matrices, strict=True):
        np.testing.assert_allclose(got, own, rtol=1e-12, atol=1e-14)
    A, B, C, D = matrices
    np.testing.assert_allclose(found.static_gain, D - C @ np.linalg.inv(A) @ B, rtol=1e-12)
    rates = np.linalg.eigvals(A)
    np.testing.assert_allclose(sorted(found.time_constants), sorted(-1 / rates.real), rtol=1e-12)


def test_responses_of_a_linear_model_are_the_closed_forms_and_late_by_the_delay():
    model, _, (A, B, C, D) = linear_model(delays=(2.0,))
    t = np.arange(0.0, 20.0, 0.5)
    late = np.maximum(t - 2.0, 0.0)
    states = [np.linalg.solve(A, (expm(A * s) - np.eye(3)) @ B) for s in late]
    expected = np.where(t >= 2.0, np.array([(C @ x + D)[0, 0] for x in states]), 0.0)
    point = linearize(model, u=[3.0])
    np.testing.assert_allclose(point.step_response(t)[:, 0, 0], expected, atol=1e-12)
    y, _ = step_response(model, u=[3.0], change=[1.0], t=t)
    # The model's own steps are those of RK4.
    np.testing.assert_allclose(y[:, 0] - point.y[0], expected, atol=1e-4)
    s = 2j * np.pi * 0.1
    by_hand = (C @ np.linalg.solve(s * np.eye(3) - A, B) + D) * np.exp(-2.0 * s)
    np.testing.assert_allclose(frequency_response(model, [0.1], u=[3.0])[0], by_hand, rtol=1e-9)


def test_the_operating_point_of_a_linear_model_is_its_solution_for_inputs_and_for_outputs():
    model, _, (A, B, C, D) = linear_model()
    scaling = model.scaling
    for u in (1.0, 4.0):
        at = operating_point(model, u=[u])
        x = -np.linalg.solve(A, B @ ([u] - scaling.u_mean))
        y = scaling.y_mean + C @ x + D @ ([u] - scaling.u_mean)
        np.testing.assert_allclose(at.x, x, atol=1e-6)
        np.testing.assert_allclose(at.y, y, atol=1e-6)
        assert (at.stable, at.isolated, at.others) == (True, True, ())
        back = operating_point(model, y=at.y)
        np.testing.assert_allclose(back.u, [u], atol=1e-5)


def test_an_integrator_has_a_line_of_equilibria_and_rests_with_one_input_alone():
    turning = np.array([[0.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -2.0]])
    model, _, _ = linear_model(turning)
    at = operating_point(model, u=model.scaling.u_mean, near=[0.7, 0.0, 0.0])
    np.testing.assert_allclose(at.x, [0.7, 0.0, 0.0], atol=1e-6)
    assert not at.isolated and not at.stable
    assert np.isinf(linearize(model, at.x, at.u).static_gain).all()
    with pytest.raises(DataError, match="must come to rest with in 0 = 9; no such state"):
        operating_point(model, u=[9.0])


def test_several_equilibria_are_all_found():
    """Polynomial dynamics x - x^3 in each state: at rest in -1, 0 and 1."""
    model, _ = make_model("cubic")
    space = model.state_space
    empty = space.f.with_readout(0 * space.f.readout)
    coefficients = np.zeros_like(empty.coefficients)
    cubes = [c for d in (2, 3) for c in combinations_with_replacement(range(5), d)]
    for i in range(3):
        coefficients[i, cubes.index((i, i, i))] = -1.0
    linear = np.hstack([np.diag([1.0, -1.0, -1.0]), np.zeros((3, 2))])
    f = replace(empty, linear=linear, coefficients=coefficients, bias=np.zeros(3))
    both = replace(model, state_space=replace(space, f=f))
    at = operating_point(both, u=[1.0, 1.0], near=[0.9, 0.0, 0.0])
    np.testing.assert_allclose(at.x, [1.0, 0.0, 0.0], atol=1e-5)
    assert at.stable and [p.stable for p in at.others] == [False, True]
    np.testing.assert_allclose([p.x[0] for p in at.others], [0.0, -1.0], atol=1e-5)


def test_a_nonlinear_model_rests_at_its_operating_point_and_gains_are_differences_of_them():
    model, _ = make_model("tanh")
    at = operating_point(model, u=[3.0, 3.0])
    d = describe(model)
    assert np.abs(evaluate(d.f, at.x, at.u)).max() < 1e-6
    h = 1e-2
    near = [linearize(model, u=[3.0 + s * h, 3.0]).y for s in (1, -1)]
    gain = linearize(model, at.x, at.u).static_gain[:, 0]
    np.testing.assert_allclose(gain, (near[0] - near[1]) / (2 * h), rtol=1e-3, atol=1e-4)
    table = linearize_over(model, u=[[2.0, 3.0], [3.0, 3.0], [4.0, 3.0]])
    assert len(table.rows) == 3 and len(str(table).splitlines()) == 4 and "<table>" in table._repr_html_()
    np.testing.assert_allclose(table.rows[1][4:8:2], gain, rtol=1e-6)
    assert len(table.figure().axes) == 2


def test_ensembles_are_linearized_side_by_side():
    ensemble, _ = make_ensemble(3)
    found = linearize(ensemble, x=np.zeros(9), u=[3.0])
    one = linearize(ensemble.members[1], x=np.zeros(3), u=[3.0])
    np.testing.assert_allclose(found.A[3:6, 3:6], one.A)


@pytest.mark.parametrize(
    ("given", "rule"),
    [({}, "got neither"), ({"u": [1.0, 2.0]}, "`u` must have 1 entries"), ({"u": [1.0], "y": [1.0]}, "as many as")],
)
def test_givens_of_an_operating_point_are_checked(given, rule):
    with pytest.raises(ConfigError, match=rule):
        operating_point(make_model("leaky")[0], **given)


def sampled(record: Record, matrices, k: int) -> tuple[np.ndarray, np.ndarray]:
    """F and G of `x[k] = F x[k - 1] + G (u[k - 1] - mean)`; RK4 of a linear system is a Taylor sum."""
    A, B, *_ = matrices
    dt = record.t[k] - record.t[k - 1]
    parts = int(np.ceil(dt / (1.5 * record.ts) - 1e-3))
    h = A * dt / parts
    F, G = np.eye(3), np.zeros((3, B.shape[1]))
    one = np.eye(3) + h + h @ h / 2 + h @ h @ h / 6 + h @ h @ h @ h / 24
    for _ in range(parts):
        F, G = one @ F, one @ G + (np.eye(3) + h / 2 + h @ h / 6 + h @ h @ h / 24) @ B * dt / parts
    return F, G


def textbook_kalman(record: Record, matrices, scaling, noise: Noise) -> np.ndarray:
    """Predictions of y by the Kalman filter of the sampled linear model."""
    _, _, C, D = matrices
    v = record.u - scaling.u_mean
    x, P, out = np.zeros(3), np.eye(3), []
    for k in range(len(record)):
        if k:
            F, G = sampled(record, matrices, k)
            x = F @ x + G @ v[k - 1]
            P = F @ P @ F.T + noise.process * (record.t[k] - record.t[k - 1])
        y = scaling.y_mean + C @ x + D @ v[k]
        out.append(y)
        if np.isfinite(record.y[k]).all():
            S = C @ P @ C.T + noise.measurement
            K = P @ C.T @ np.linalg.inv(S)
            x, P = x + K @ (record.y[k] - y), P - K @ S @ K.T
    return np.array(out)


def with_missing_samples(record: Record) -> Record:
    y = record.y.copy()
    y[10:14] = np.nan
    return replace(record, y=y)


@pytest.mark.parametrize("unscented", [False, True])
def test_the_observer_of_a_linear_model_is_the_kalman_filter(unscented):
    """On an uneven clock, with missing samples."""
    model, record, matrices = linear_model()
    record, y = with_missing_samples(record), with_missing_samples(record).y
    noise = Noise(0.02 * np.eye(3), np.array([[0.01]]))
    observer = Observer(model, noise, x0=np.zeros(3), unscented=unscented)
    got = [observer.update(*sample) for sample in zip(record.u, record.y, record.t, strict=True)]
    expected = textbook_kalman(record, matrices, model.scaling, noise)
    predicted = np.array([s.innovation for s in got])
    np.testing.assert_allclose(np.where(np.isnan(y), np.nan, y - expected), predicted, atol=1e-10)
    assert np.isnan(predicted[10:14]).all()
    ahead = predict_ahead(Observer(model, noise, x0=np.zeros(3), unscented=unscented), record)
    np.testing.assert_allclose(ahead.y[1:], expected[1:], atol=1e-10)


def most_likely_states(record: Record, matrices, scaling, noise: Noise) -> tuple[np.ndarray, np.ndarray]:
    """States of a whole record and their covariances, by one weighted least squares problem of all of them."""
    _, _, C, D = matrices
    N, v = len(record), record.u - scaling.u_mean
    rows, right = [np.eye(3, 3 * N)], [np.zeros(3)]  # the initial state, with unit covariance

    def add(block: np.ndarray, value: np.ndarray, covariance: np.ndarray) -> None:
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        rows.append(root @ block)
        right.append(root @ value)

    for k in range(N):
        here = np.eye(3, 3 * N, k=3 * k)
        if k:
            F, G = sampled(record, matrices, k)
            dt = record.t[k] - record.t[k - 1]
            add(here - F @ np.eye(3, 3 * N, k=3 * (k - 1)), G @ v[k - 1], noise.process * dt)
        if np.isfinite(record.y[k]).all():
            add(C @ here, record.y[k] - scaling.y_mean - D @ v[k], noise.measurement)
    J = np.vstack(rows)
    inverse = np.linalg.inv(J.T @ J)
    x = inverse @ J.T @ np.concatenate(right)
    return x.reshape(N, 3), np.array([inverse[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] for k in range(N)])


@pytest.mark.parametrize("unscented", [False, True])
def test_smoothed_states_of_a_linear_model_are_the_most_likely_ones(unscented):
    """Those of one least squares problem for all states, whose normal matrix has their covariances as its inverse."""
    model, record, matrices = linear_model()
    record = with_missing_samples(record)
    noise = Noise(0.02 * np.eye(3), np.array([[0.01]]))
    found = smooth(Observer(model, noise, x0=np.zeros(3), unscented=unscented), record)
    x, P = most_likely_states(record, matrices, model.scaling, noise)
    np.testing.assert_allclose(found.x, x, atol=1e-9)
    np.testing.assert_allclose(found.P, P, atol=1e-9)
    _, _, C, D = matrices
    y = model.scaling.y_mean + x @ C.T + (record.u - model.scaling.u_mean) @ D.T
    np.testing.assert_allclose(found.y, y, atol=1e-9)


@pytest.mark.parametrize("unscented", [False, True])
def test_smoothing_without_noise_gives_back_the_simulation(unscented):
    """Of a nonlinear model with delays, from the state that is known."""
    model, record = delayed()
    expected = model.simulate(record, x0=np.full(3, 0.2))
    observer = Observer(model, Noise(1e-9 * np.eye(3), np.eye(2)), x0=np.full(3, 0.2), P0=np.zeros((3, 3)))
    observer.unscented = unscented
    found = smooth(observer, replace(record, y=expected.y))
    np.testing.assert_allclose(found.x, expected.x, atol=1e-6)
    np.testing.assert_allclose(found.y, expected.y, atol=1e-6)
    assert observer.t is None  # it was left as it is


def test_the_unscented_transform_has_the_mean_of_a_quadratic_function_and_all_of_a_linear_one():
    rng = np.random.default_rng(0)
    m, A, root = rng.normal(size=3), rng.normal(size=(2, 3)), rng.normal(size=(3, 3))
    P = root @ root.T
    mean, slope, rest = spread(lambda x: x @ A.T, m, P)
    for got, expected in ((mean, A @ m), (slope, A), (rest, np.zeros((2, 2)))):
        np.testing.assert_allclose(got, expected, atol=1e-12)
    mean, slope, rest = spread(lambda x: np.sum(x**2, axis=1, keepdims=True), m, P)
    np.testing.assert_allclose(mean, m @ m + np.trace(P), rtol=1e-12)  # E[x'x] in closed form
    np.testing.assert_allclose(slope[0], 2 * m, rtol=1e-12)
    assert rest[0, 0] > 0


def test_an_output_without_its_sign_is_observed_on_both_sides():
    """At zero, |x| has the mean sqrt(2/pi) of a unit deviation; a Jacobian says zero."""
    mean, slope, rest = spread(np.abs, np.zeros(1), np.eye(1))
    assert mean[0] == pytest.approx(np.sqrt(2 / np.pi), rel=0.05) and slope[0, 0] == pytest.approx(0.0)
    assert rest[0, 0] == pytest.approx(1 - mean[0] ** 2)


def test_the_covariance_settles_at_that_of_the_riccati_equation():
    model, _, (A, _, C, _) = linear_model()
    noise = Noise(0.02 * np.eye(3), np.array([[0.01]]))
    observer, dt = Observer(model, noise), 0.4
    for k in range(300):
        estimate = observer.update([3.0], None if k == 0 else [-1.0], k * dt)
    P = solve_discrete_are(expm(A * dt).T, C.T, noise.process * dt, noise.measurement)
    S = C @ P @ C.T + noise.measurement
    # RK4 against the exact exponential.
    np.testing.assert_allclose(estimate.S, S, rtol=1e-5)


def noisy_plant(samples: int = 200, *, q: float, r: float) -> tuple[Model, Record]:
    model, _, (A, B, C, D) = linear_model()
    rng, ts = np.random.default_rng(3), 0.5
    u, x, y = rng.normal(3.0, 2.0, (samples, 1)), np.zeros(3), []
    F = expm(A * ts)
    for now in u:
        y.append(model.scaling.y_mean + C @ x + D @ (now - model.scaling.u_mean) + r * rng.normal(size=1))
        x = F @ x + np.linalg.solve(A, (F - np.eye(3)) @ B @ (now - model.scaling.u_mean))
        x = x + np.sqrt(q * ts) * rng.normal(size=3)
    return model, Record.from_arrays(u, np.array(y), ts=ts, input_names=model.input_names)


def test_noise_levels_are_found_and_stated_and_predictions_beat_the_free_run():
    model, record = noisy_plant(150, q=0.05, r=0.1)
    noise = estimate_noise(model, record)
    assert 0.05 < np.sqrt(noise.measurement[0, 0]) < 0.2 and 0.005 < noise.process[0, 0] < 0.5  # a decade a trial
    assert "maximum likelihood over 150 samples" in noise.source
    runs = {f"{k} ahead": predict_ahead(Observer(model, noise), record, steps=k) for k in (1, 4)}
    found = compare({"free": model.simulate(record, x0=np.zeros(3)), **runs}, record, skip=20)
    errors = {name: score.rmse["y"] for name, score in found.scores.items()}
    assert errors["1 ahead"] < errors["4 ahead"] < errors["free"]


def test_stated_deviations_of_predictions_hold():
    model, record = noisy_plant(q=0.05, r=0.1)
    noise = Noise(0.05 * np.eye(3), np.array([[0.01]]))
    observer, inside = Observer(model, noise), []
    for k in range(len(record) - 4):
        observer.update(record.u[k], record.y[k], record.t[k])
        y, std = observer.predict(record.u[k + 1 : k + 4], record.t[k + 1 : k + 4])
        inside.append(np.abs(y[-1] - record.y[k + 3]) < 2 * std[-1])
    assert 0.9 < np.mean(inside) < 0.99  # 95.4 % are expected


def test_samples_must_come_in_order_and_fit_the_model():
    model, _ = make_model("leaky")
    observer = Observer(model, Noise(np.eye(3), np.eye(1)))
    observer.update([3.0], [1.0], 1.0)
    with pytest.raises(DataError, match="order of their times"):
        observer.update([3.0], [1.0], 1.0)
    with pytest.raises(DataError, match="1 finite inputs and 1 outputs"):
        observer.update([3.0, 1.0], [1.0], 2.0)
    with pytest.raises(ConfigError, match="must have x0, P0"):
        Observer(model, Noise(np.eye(2), np.eye(1)))


@pytest.mark.parametrize("case", ["leaky", "tanh"])
def test_the_simulator_and_an_observer_without_measurements_follow_the_simulation(case):
    model, record = delayed(case)
    expected = model.simulate(record, x0=np.full(3, 0.2))
    simulator = Simulator(model, x0=np.full(3, 0.2))
    steps = zip(record.u[:-1], np.diff(record.t), record.u[1:], strict=True)
    np.testing.assert_allclose([simulator.step(*s) for s in steps], expected.y[1:], rtol=1e-10)
    d = describe(model)
    observer = Observer(model, Noise(np.eye(d.nx), np.eye(d.ny)), x0=np.full(3, 0.2))
    y = [observer.update(u, None, t).y for u, t in zip(record.u, record.t, strict=True)]
    np.testing.assert_allclose(y, expected.y, rtol=1e-10)


@pytest.mark.parametrize("case", ["both", "cubic", "autonomous", "tanks", "ensemble"])
def test_steps_of_the_simulator_are_those_of_the_interpreter(case):
    """By the library and, with known equations, by the interpreter itself; some steps are taken in parts."""
    model, record = make_ensemble(4) if case == "ensemble" else make_model(case)
    simulator, d = Simulator(model), describe(model)
    assert (simulator._compiled is None) == (case == "tanks")
    x, y = interpreter.simulate(d, d.x0, record.u, record.t)
    for k, dt in enumerate(np.diff(record.t)):
        got = simulator.step(record.u[k], dt, record.u[k + 1])
        np.testing.assert_allclose(got, y[k + 1], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(simulator.x, x[k + 1], rtol=1e-11, atol=1e-12)
    assert simulator.t == pytest.approx(record.t[-1] - record.t[0])


def test_a_simulator_refuses_what_it_cannot_step():
    simulator = Simulator(make_model("leaky")[0])
    for u, dt, rule in (
        ([3.0, 1.0], 1.0, "model's 1 inputs; got shape \\(2,\\)"),
        ([3.0], 0.0, "`dt` must be a positive"),
    ):
        with pytest.raises(DataError, match=rule):
            simulator.step(u, dt)
    with pytest.raises(DivergenceError, match="diverged at 0.5 s"):
        simulator.step([np.nan], 0.5)


def test_models_linear_ones_and_arrays_are_compared_over_the_same_samples():
    model, record = noisy_plant(q=1e-6, r=0.02)
    bla = tausid.estimate_bla(record, nx=3)
    own = np.full(len(record), np.nan)
    own[7:] = record.y[7:, 0] + 1.0
    found = tausid.compare({"bla": bla, "mine": own, "known": model.simulate(record, x0=np.zeros(3))}, record)
    assert {score.n_skipped for score in found.scores.values()} == {50}
    assert found.scores["mine"].rmse["y"] == pytest.approx(1.0)
    assert [row[0] for row in found.rows][-1] == "mine" and "the first 50 left out for all" in str(found)
    assert len(found.figure().axes) == 2 and "<table>" in found._repr_html_()
    with pytest.raises(DataError, match="outputs 'mine' must have the record's shape"):
        compare({"mine": own[:-1]}, record)
    with pytest.raises(DataError, match="at least one model"):
        compare({}, record)
