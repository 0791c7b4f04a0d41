"""Levenberg-Marquardt: its normal equations against a dense Jacobian, its limits, folds, resuming, and bad starts."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problems import oscillator_record, wiener_record
from tausid.model.config import Config
from tausid.training.choosing import BETTER, Trials, choose, describe, endures, pool_iterations
from tausid.training.finishing import Search, expectation, finish
from tausid.training.folds import stretch
from tausid.training.held_out import hold_out
from tausid.training.loop import Problem, start_run
from tausid.training.protocols import Split
from tausid.training.second_order import FullError, Normal, levenberg_marquardt, normal_equations
from tausid.training.setup import choose_settings, settle, start_problem
from tausid.training.starting import settle_states
from test_physics import Lag, lag_record

import tausid
from tausid import ConfigError, DataError, Record
from tausid.model.tau import Tau
from tausid.storage import write_arrays
from tausid.training import finishing, fitting, loop, second_order, starting
from tausid.training.checkpoint import CURVES_NAME, identity, load_fold_curves, save_fold_curves
from tausid.training.outcome import make_result
from tausid.training.result import FoldCurve, FoldCurves, HistoryRow

# A network that bends from the start, so that every part of the Jacobian is used.
BENT = {"nx": 2, "hidden": (3,), "activation": "tanh", "nonlinear_start": "random", "weight_range": 0.5, "folds": 0}
# What ends within seconds.
QUICK = {"seed": 0, "hidden": (3,), "finish_steps": 3, "folds": 2, "finish_parts": "both", "progress": None,
         "nx": 2, "network": "mlp", "activation": "leaky_relu"}  # fmt: skip


def make_problem(records: list[Record], *, tau: float | Tau = 2.0, physics: Lag | None = None, **settings) -> Problem:
    config = tausid.recipe_config(**{**BENT, **settings})
    return start_problem(settle(config, records), tau, Split(tuple(records), ()), physics)


def with_missing(record: Record, *, every: int) -> Record:
    y = np.array(record.y)
    y[::every] = np.nan
    return dataclasses.replace(record, y=y)


def two_outputs(samples: int, *, seed: int = 0) -> Record:
    record = wiener_record(samples, seed=seed)
    return Record.from_arrays(record.u, np.hstack([record.y, record.y**2]), ts=0.5, output_names=["a", "b"], name="two")


CASES = {
    "one record": lambda: make_problem([wiener_record(60)]),
    "records of several lengths with holes": lambda: make_problem(
        [with_missing(wiener_record(60), every=7), wiener_record(41, seed=2)], weight_decay=0.1, nonlinear_decay=0.2
    ),
    "weighted outputs": lambda: make_problem([two_outputs(50), two_outputs(30, seed=1)], output_weights=(3.0, 1.0)),
    "limited outputs": lambda: make_problem([wiener_record(60)], output_limits=(-0.3, 0.5)),
    "first-order hold, trained tau": lambda: make_problem(
        [wiener_record(60)], hold="first", tau=Tau(2.0, trainable=True), stepper="heun", substeps=2
    ),
    "corrected equations": lambda: make_problem(
        [lag_record(60)], physics=Lag(), correction="network", init="random", nx=1, hold="zero"
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
@pytest.mark.parametrize(("name", "chunk"), [("one record", second_order.CHUNK), *((name, 1) for name in CASES)])
def test_the_normal_equations_are_those_of_the_dense_jacobian(name, chunk, monkeypatch):
    monkeypatch.setattr(second_order, "CHUNK", chunk)
    problem = CASES[name]()
    search = Search.over(problem, problem.initial_model.state_space, "both")
    with jax.enable_x64(True):
        theta, unravel = ravel_pytree(search.weights)
        found = normal_equations.__wrapped__(search.error, search.weights, search.x0)  # not compiled: CHUNK is no key
        J, Jx = jax.jacfwd(lambda t, x: residuals(search.error, t, x, unravel), (0, 1))(theta, search.x0)
        r = residuals(search.error, theta, search.x0, unravel)
        expected = Normal(
            H=J.T @ J,
            G=jnp.einsum("np,nbq->bpq", J, Jx),
            K=jnp.einsum("nbp,nbq->bpq", Jx, Jx),
            h=J.T @ r,
            k=jnp.einsum("nbq,n->bq", Jx, r),
        )
        objective, squares = float(search.error(search.weights, search.x0).objective), float(r @ r)
    assert objective == pytest.approx(squares, rel=1e-12)
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
    dense = np.linalg.solve(full + damping * np.diag(np.diag(full) + second_order.FLOOR), -J.T @ r)
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


def quadratic_with_a_cliff(steps: list[float]) -> FullError:
    """Not a simulation but what the search sees of one: (w - 1)^2, and NaN from 0.3 on."""

    class Cliff(eqx.Module):
        def __call__(self, weights, x0):
            steps.append(float(weights[0]))
            value = jnp.where(weights[0] < 0.3, (weights[0] - 1.0) ** 2, jnp.nan)
            return second_order.Errors(value, value)

    return Cliff()


def test_steps_that_lead_to_nan_are_not_taken_and_damping_grows(monkeypatch):
    tried: list[float] = []

    def equations(error, weights, x0):
        K, k = jnp.eye(1)[None], jnp.zeros((1, 1))
        return Normal(jnp.eye(1), jnp.zeros((1, 1, 1)), K, (weights - 1.0), k)

    monkeypatch.setattr(second_order, "normal_equations", equations)
    monkeypatch.setattr(second_order, "_errors", lambda error, weights, x0: error(weights, x0))
    monkeypatch.setattr(second_order, "fit_initial_states", lambda error, weights, x0: x0)
    with jax.enable_x64(True):
        points = levenberg_marquardt(quadratic_with_a_cliff(tried), jnp.zeros(1), jnp.zeros((1, 1)))
        first = next(points)
    assert float(first.weights[0]) < 0.3 and np.isfinite(float(first.errors.objective))
    assert len(tried) > 3 and tried[1] > tried[2] > tried[3]  # ever shorter steps, all but the last beyond the cliff
    assert all(step >= 0.3 for step in tried[1:-1])


def test_a_linear_plant_reaches_the_floor_of_linear_least_squares():
    record = oscillator_record(300, noise=0.05)
    result = tausid.fit(record, seed=0, nx=2, hidden=(), weight_decay=0.0, folds=0, finish_steps=20, substeps=2,
                        progress=None)  # fmt: skip
    floor = float(tausid.estimate_bla(record, nx=2).rmse[0])
    # The same model class and the same error; the integrator's 1e-4 is all that differs.
    assert np.sqrt(result.history[-1].loss) * record.y.std() < 1.001 * floor
    losses = [row.loss for row in result.history]
    assert all(after <= before for before, after in itertools.pairwise(losses))
    assert result.message.startswith(f"{result.steps} iteration") and " of lm." in result.message


def test_held_out_data_choose_what_is_left_open():
    open_ones = {**QUICK, "nx": "auto", "network": "auto", "activation": "auto", "finish_parts": "auto"}
    said: list = []
    result = tausid.fit(wiener_record(120), **{**open_ones, "finish_steps": 2, "progress": said.append})
    lowest: dict[str, list[float]] = {}
    for update in said[: len(said) - result.steps]:  # the last ones are those of the fit on everything
        choice, fold = update.note.split(": ")
        lowest.setdefault(choice, [np.inf, np.inf])[int(fold[5]) - 1] = update.best
    assert describe(result.config) in lowest
    # Of what was tried none is much better in all folds than what was chosen; hopeless ones saw only the first.
    chosen = np.array(lowest[describe(result.config)])
    assert not any((np.array(found) < BETTER * chosen).all() for found in lowest.values())
    assert {choice.split(", ")[1] for choice in lowest} == {"leaky_relu", "tanh", "polynomial"}
    assert len({choice.split()[0] for choice in lowest}) > 1  # numbers of states
    assert {choice.split(", ")[2] for choice in lowest} == {"f nonlinear", "f and g nonlinear"}


def test_what_nothing_decides_has_a_rule():
    alone = {**QUICK, "network": "auto", "activation": "auto", "finish_parts": "auto", "folds": 0, "finish_steps": 1}
    result = tausid.fit(wiener_record(150), **alone)
    assert (result.config.activation, result.config.finish_parts) == ("leaky_relu", "both")
    assert float(jnp.abs(result.model.state_space.g.readout).max()) > 0.0


def test_parts_that_are_not_trained_stay_at_zero():
    result = tausid.fit(wiener_record(150), **{**QUICK, "finish_parts": "f", "folds": 0})
    assert float(jnp.abs(result.model.state_space.g.readout).max()) == 0.0


def test_validation_records_choose_what_is_left_open():
    settings = {**QUICK, "folds": 0, "activation": "auto", "finish_parts": "f"}
    fits = {
        name: tausid.fit(wiener_record(150), validation=wiener_record(80, seed=5), **{**settings, "activation": name})
        for name in ("auto", "leaky_relu", "tanh")
    }
    lowest = {name: min(row.validation for row in fit.history) for name, fit in fits.items()}
    better = lowest["tanh"] < BETTER * lowest["leaky_relu"]
    assert fits["auto"].config.activation == ("tanh" if better else "leaky_relu")
    assert fits["auto"].folds is None


def scripted(errors: dict[str, float], *, folds: int = 2) -> Trials:
    """Trials whose outcome is known beforehand."""

    class Scripted(Trials):
        def of(self, config, rival=None, enough=None):
            found = errors[describe(config)]
            self.done += 1
            self.seconds += 2.0
            return FoldCurves((1,), ((found,),), (found,), 1)

    record = wiener_record(200)
    split = Split((record,), (record,))
    idle = {"known": {}, "keep": print, "report": print, "interrupted": threading.Event(), "planned": 1}
    return Scripted([split] * folds, lambda config, split: None, **idle)


def test_choices_are_tried_one_step_away_from_the_best():
    asked = tausid.recipe_config(hidden=(3,))
    start = dataclasses.replace(asked, nx=2, network="mlp", activation="leaky_relu", finish_parts="f")
    errors = {
        "2 states, leaky_relu, f nonlinear": 1.0,
        "1 state, leaky_relu, f nonlinear": 2.0,
        "3 states, leaky_relu, f nonlinear": 0.5,
        "4 states, leaky_relu, f nonlinear": 0.495,
        "3 states, tanh, f nonlinear": 0.4,
        "2 states, tanh, f nonlinear": 0.7,
        "3 states, polynomial, f nonlinear": 0.6,
        "2 states, polynomial, f nonlinear": 0.6,
        "3 states, tanh, f and g nonlinear": 0.21,
    }
    trials = scripted(errors)
    choice = choose(asked, start, trials)
    # Four states gain less than two per cent, and a nonlinear g less than half: what was tried first stays.
    assert (choice.config.nx, choice.config.activation, choice.config.finish_parts) == (3, "tanh", "f")
    assert choice.curves.pooled == (0.4,)
    assert (choice.tried, choice.seconds) == (len(errors), 2.0 * len(errors))


def test_a_nonlinear_g_is_taken_where_it_halves_the_error():
    asked = tausid.recipe_config(nx=1, hidden=(3,), activation="tanh", network="mlp")
    errors = {"1 state, tanh, f nonlinear": 1.0, "1 state, tanh, f and g nonlinear": 0.49}
    choice = choose(asked, dataclasses.replace(asked, finish_parts="f"), scripted(errors))
    assert choice.config.finish_parts == "both"


def test_another_kind_of_network_may_do_with_one_state_less():
    asked = tausid.recipe_config(hidden=(3,), network="mlp", finish_parts="f")
    errors = {
        "3 states, leaky_relu, f nonlinear": 1.0,
        "1 state, leaky_relu, f nonlinear": 2.0,
        "2 states, leaky_relu, f nonlinear": 1.5,
        "4 states, leaky_relu, f nonlinear": 1.0,
        "3 states, tanh, f nonlinear": 1.1,
        "2 states, tanh, f nonlinear": 0.9,
    }
    choice = choose(asked, dataclasses.replace(asked, nx=3, activation="leaky_relu"), scripted(errors))
    assert (choice.config.nx, choice.config.activation) == (2, "tanh")


def test_one_state_is_not_tried_twice():
    asked = tausid.recipe_config(hidden=(3,), network="mlp", finish_parts="f")
    errors = {"1 state, leaky_relu, f nonlinear": 1.0, "2 states, leaky_relu, f nonlinear": 1.0,
              "1 state, tanh, f nonlinear": 1.1}  # fmt: skip
    trials = scripted(errors)
    choose(asked, dataclasses.replace(asked, nx=1, activation="leaky_relu"), trials)
    assert trials.done == len(errors)


def test_all_fewer_states_are_tried_and_more_only_where_none_of_them_helps():
    asked = tausid.recipe_config(hidden=(3,), activation="tanh", network="mlp", finish_parts="f")
    errors = {5: 1.0, 1: 2.0, 2: 0.3, 3: 0.6, 4: 0.7}  # not monotonic; six states are not in the table
    trials = scripted({f"{n} state{'s' * (n > 1)}, tanh, f nonlinear": error for n, error in errors.items()})
    choice = choose(asked, dataclasses.replace(asked, nx=5), trials)
    assert choice.config.nx == 2 and trials.done == len(errors)


def test_a_choice_that_runs_away_with_larger_inputs_is_none():
    # dx/dt = -x + x^3 + u stays near zero for |u| < 0.38 and runs away beyond: a polynomial can learn this exactly.
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-0.35, 0.35, 12), 50)[:, None]
    x = np.zeros(len(u))
    for k in range(len(u) - 1):
        x[k + 1] = x[k] + 0.1 * (-x[k] + x[k] ** 3 + u[k, 0])
    record = Record.from_arrays(u, x[:, None] + 1e-3 * rng.standard_normal(u.shape), ts=0.1)
    settings = {"nx": 1, "finish_parts": "f", "folds": 0, "finish_steps": 15, "hidden": (5,), "progress": None}
    fits = [tausid.fit(record, seed=0, network=network, **settings).model for network in ("polynomial", "mlp")]
    assert [model.simulate(record).status for model in fits] == ["ok", "ok"]
    assert [endures(model, [record]) for model in fits] == [False, True]
    given = {**settings, "folds": 2, "network": "polynomial"}
    assert tausid.fit(record, seed=0, **given).status == "completed"  # it was asked for


def test_initial_states_move_before_the_weights_do():
    problem = make_problem([wiener_record(60)])
    search = Search.over(problem, problem.initial_model.state_space, "both")
    with jax.enable_x64(True):
        wrong = search.x0 + 3.0
        found = second_order.fit_initial_states(search.error, search.weights, wrong)
        before, after = (float(search.error(search.weights, x0).objective) for x0 in (wrong, found))
        equations = normal_equations(search.error, search.weights, found)
    assert after < 0.5 * before
    assert np.abs(np.asarray(equations.k)).max() < 1e-4  # the slope is gone: nothing is left to gain


def test_the_order_is_that_of_the_linear_approximation():
    record = oscillator_record(200, noise=0.02)
    result = tausid.fit(record, seed=0, hidden=(), folds=0, finish_steps=1, progress=None)
    assert result.config.nx == tausid.estimate_bla(record, nx="auto").order == result.model.state_space.nx


def test_a_fold_never_trains_on_the_outputs_it_is_scored_on():
    record = wiener_record(200)
    y = np.array(record.y)
    y[100:] += 5.0  # the second stretch
    config = make_problem([record]).config
    ends = []
    for data in (record, dataclasses.replace(record, y=y)):
        fold = hold_out(Split((data,), ()), dataclasses.replace(config, folds=2))[1]
        assert np.array_equal(fold.validation[0].y, data.y[100:])
        problem = make_problem(list(fold.train))
        search = Search.over(problem, problem.initial_model.state_space, "both")
        ends.append(list(itertools.islice(search.points(), 3))[-1])
    assert eqx.tree_equal(ends[0].weights, ends[1].weights)
    assert float(ends[0].errors.outputs) == float(ends[1].errors.outputs)


def test_a_fold_that_cannot_be_trained_says_so():
    def make(config, split):
        raise DataError("its input stands still.")

    idle = {"known": {}, "keep": print, "report": print, "interrupted": threading.Event(), "planned": 1}
    trials = Trials([Split((wiener_record(60),), (wiener_record(60),))] * 2, make, **idle)
    config = make_problem([wiener_record(60)]).config
    with pytest.raises(DataError, match=r"each fold must .* fold 1 of 2 is not: its input .* Use fewer folds"):
        trials.of(dataclasses.replace(config, folds=2))
    with pytest.raises(DataError, match=r"^its input stands still\.$"):  # validation records: there are no folds
        trials.of(dataclasses.replace(config, folds=0))
    # Where there is another choice already, this one is none.
    assert np.isinf(trials.of(dataclasses.replace(config, folds=2), rival=config).lowest)


def test_folds_start_as_the_fit_on_everything_does(monkeypatch):
    asked = []

    def spy(records, config, order=None):
        asked.append(order)
        return starting.approximate(records, config, order=order)

    monkeypatch.setattr(fitting, "approximate", spy)
    record = oscillator_record(200)
    order = tausid.estimate_bla(record).order
    tausid.fit(record, **{**QUICK, "activation": "auto", "finish_steps": 1, "nx": order + 1})
    assert asked == [order, order]  # once per fold, for all choices


def test_held_out_stretches_cover_a_record_but_for_its_first_samples():
    assert [stretch(90, k, 4, 10) for k in range(4)] == [(10, 22), (22, 45), (45, 68), (68, 90)]
    assert stretch(90, 0, 4, 50) == (90 // 8, 22)  # half a stretch stays


def test_folds_hold_out_what_can_be_scored():
    long, short = wiener_record(200), wiener_record(60, seed=1)
    unmeasured = dataclasses.replace(long, y=np.where(np.arange(200)[:, None] < 100, long.y, np.nan))
    config = make_problem([long], folds=2).config
    first, second = hold_out(Split((long, short), ()), config)
    assert [len(r) for r in (*first.validation, *second.validation)] == [80, 100, 30]  # 20 samples stay, or 15 of 60
    assert np.isnan(second.train[0].y[100:]).all() and np.array_equal(second.train[0].u, long.u)
    assert len(hold_out(Split((long, unmeasured), ()), config)[1].validation) == 1
    late = dataclasses.replace(unmeasured, y=np.where(np.arange(200)[:, None] < 20, np.nan, unmeasured.y))
    assert [len(fold.validation) for fold in hold_out(Split((long, late), ()), config)] == [1, 1]
    with pytest.raises(ConfigError, match="`folds` must hold out measured outputs; none of 2 folds does, with 20"):
        hold_out(Split((wiener_record(40),), ()), config)


def test_where_validation_records_decide_long_records_are_tried_in_part():
    long, held_out = wiener_record(3 * 4096), wiener_record(100, seed=1)
    (trial,) = hold_out(Split((long,), (held_out,)), make_problem([wiener_record(60)]).config)
    assert len(trial.train[0]) == 4096 and trial.validation == (held_out,)
    assert hold_out(Split((long,), ()), make_problem([wiener_record(60)]).config) == ()


def test_records_are_tried_where_their_inputs_move():
    samples, held_out = 3 * 4096, wiener_record(100, seed=1)
    moves = np.random.default_rng(0).standard_normal((samples, 2))
    config, still = make_problem([wiener_record(60)]).config, np.arange(samples) < 5000

    def tried(u: np.ndarray) -> tuple[int, int]:
        record = Record.from_arrays(u, moves[:, :1], ts=1.0)
        (trial,) = hold_out(Split((record,), (held_out,)), config)
        return int(trial.train[0].t[0]), len(trial.train[0])

    assert tried(moves) == tried(np.hstack([moves, np.ones((samples, 1))])) == (0, 4096)
    at_rest = np.where(still[:, None], [1.0, 0.0], moves)
    start, length = tried(at_rest)
    assert start >= 4800 and length == 4096
    assert tried(np.where(still[:, None], [1.0, 0.0], moves)) == (start, length)
    apart = np.column_stack([np.where(np.arange(samples) < 3000, moves[:, 0], 0.0),
                             np.where(np.arange(samples) > 9000, moves[:, 1], 0.0)])  # fmt: skip
    assert tried(apart) == (0, samples)  # no stretch has both


def test_iterations_are_chosen_by_the_pooled_error_and_divergence_counts():
    curves = pool_iterations([FoldCurve((4.0, 3.0, 1.0), 10, 1.0), FoldCurve((4.0, 1.0, 2.0, np.nan), 30, 2.0)], 3)
    # (3^10 1^30)^(1/40), and so on; the first fold stays at its last error.
    np.testing.assert_allclose(curves.pooled, [4.0, 3**0.25, 2**0.75, np.inf])
    assert (curves.steps, curves.chosen) == ((0, 1, 2, 3), 1)
    assert np.isinf(pool_iterations([FoldCurve((np.nan,), 10, 1.0)], 2).lowest)


def test_a_fold_that_holds_out_what_no_other_shows_does_not_outweigh_the_rest():
    alike, alone = FoldCurve((0.2, 0.1, 0.03), 10, 1.0), FoldCurve((0.45, 0.4, 0.42), 10, 1.0)
    assert pool_iterations([alike, alike, alike, alone], 2).chosen == 2


def test_the_start_is_a_choice_and_what_is_as_good_as_nothing_is_not_lowered():
    assert pool_iterations([FoldCurve((1.0, 1.1, 1.2), 10, 1.0)], 2).chosen == 0
    curves = pool_iterations([FoldCurve((1.0, 5e-5, 1e-6), 10, 1.0)], 2)
    assert curves.chosen == 1 and curves.lowest == pytest.approx(1e-6)
    asked = tausid.recipe_config(hidden=(3,), nx=2)
    start = dataclasses.replace(asked, network="mlp", activation="leaky_relu", finish_parts="f")
    trials = scripted({"2 states, leaky_relu, f nonlinear": 5e-5})  # others are not in the table
    assert choose(asked, start, trials).config == start


def test_held_out_data_may_prefer_the_linear_model(tmp_path):
    record = oscillator_record(300)
    # Four steps per sample leave an error of integration below that of single precision.
    settings = {"seed": 0, "hidden": (3,), "finish_steps": 2, "folds": 2, "substeps": 4, "progress": None}
    result = tausid.fit(record, **settings, out=tmp_path)
    assert (result.status, result.steps, result.folds.chosen, result.history) == ("completed", 0, 0, ())
    assert result.message.startswith("held-out data prefer the linear model: no iteration of lm is better over 2 folds")
    # As good as the folds say, to a factor for another record.
    assert tausid.evaluate(result.model, oscillator_record(100, seed=1)).nrmse["y"] < 1e-3
    assert same(tausid.fit(record, **settings, out=tmp_path, resume=True), result)
    size = {"nx": [result.config.nx], "hidden": [[3]]}
    rows = tausid.choose_size(record, **{**settings, **size}).rows
    assert rows[0].error == result.folds.lowest and rows[0].steps == 0


def test_trials_of_an_older_version_are_repeated(tmp_path):
    problem = make_problem([wiener_record(60)])
    save_fold_curves(tmp_path, problem, {"a": FoldCurve((2.0, 1.0), 10, 1.0)})
    assert load_fold_curves(tmp_path, problem) == {"a": FoldCurve((2.0, 1.0), 10, 1.0)}
    older = {"identity": identity(problem), "curves": {"a": [[1.0], 10, 1.0]}}
    write_arrays(tmp_path / CURVES_NAME, {}, kind="checkpoint", content=older)
    assert load_fold_curves(tmp_path, problem) == {}


def test_what_is_expected_of_states_is_their_mean_and_covariance():
    rng = np.random.default_rng(0)
    mixed = np.array([[2.0, 0.0], [1.5, 0.5]])
    states = rng.standard_normal((5000, 2)) @ mixed.T + [1.0, -3.0]
    mean, tightness = expectation(states, 0.1)
    np.testing.assert_allclose(mean, states.mean(axis=0))
    np.testing.assert_allclose(tightness.T @ tightness, 0.01 * np.linalg.inv(np.cov(states.T, bias=True)), rtol=1e-8)
    resting = np.column_stack([states, np.full(5000, 7.0)])  # a state that never moved
    assert np.abs(expectation(resting, 0.1)[1][:, 2]).max() == 0.0


def test_the_estimate_of_an_initial_state_is_that_of_linear_theory():
    """A linear model: the estimate is that of Bayes for a normal expectation and white noise, in closed form."""
    record = oscillator_record(300, noise=0.05)
    model = tausid.fit(record, seed=0, nx=2, hidden=(), folds=0, finish_steps=5, progress=None).model
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A fit with folds that was never stopped, with what it said, and its folder."""
    said: list = []
    folder = tmp_path_factory.mktemp("run")
    return tausid.fit(wiener_record(150), **{**QUICK, "progress": said.append}, out=folder), said, folder


def same(a: tausid.FitResult, b: tausid.FitResult) -> bool:
    arrays = (jax.tree.leaves(eqx.filter(r.model.state_space, eqx.is_array)) for r in (a, b))
    return all(np.array_equal(x, y) for x, y in zip(*arrays, strict=True))


def test_folds_choose_the_iterations_and_say_how_they_go(whole):
    result, said, _ = whole
    assert result.status == "completed" and result.steps == result.folds.chosen
    assert result.message.startswith(f"{result.steps} iteration{'s' * (result.steps > 1)} of lm, chosen by 2 folds.")
    notes = [update.note for update in said]
    assert notes[0] == "2 states, leaky_relu, f and g nonlinear: fold 1 of 2, iteration 1"
    assert notes[-1].startswith("lm, iteration")
    assert [u.step for u in said] == sorted(u.step for u in said) and said[-1].step == said[-1].max_steps
    assert all(np.isfinite([u.loss, u.validation, u.best]).all() and u.status == "running" for u in said)
    assert [row.validation for row in result.history] == list(result.folds.pooled[1 : result.steps + 1])
    assert np.isnan([row.learning_rate for row in result.history]).all()


def test_a_finished_fit_is_read_and_not_trained_again(whole):
    result, _, folder = whole
    said: list = []
    again = tausid.fit(wiener_record(150), **{**QUICK, "progress": said.append}, out=folder, resume=True)
    assert not said and same(again, result)
    assert again.folds == result.folds and again.seconds == result.seconds
    with pytest.raises(ConfigError, match="holds one. Resume it"):
        tausid.fit(wiener_record(150), **QUICK, out=folder)
    with pytest.raises(ConfigError, match="`finish_steps` was 3 and is now 4"):
        tausid.fit(wiener_record(150), **{**QUICK, "finish_steps": 4}, out=folder, resume=True)


@pytest.mark.parametrize("note", ["fold 1 of 2, iteration 2", "fold 2 of 2, iteration 1", "lm, iteration 1 of"])
def test_an_interrupted_fit_goes_on_as_if_never_stopped(whole, note, tmp_path):
    import signal

    def stop(update) -> None:
        if note in update.note:
            signal.raise_signal(signal.SIGINT)

    stopped = tausid.fit(wiener_record(150), **{**QUICK, "progress": stop}, out=tmp_path)
    assert stopped.status == "interrupted" or stopped.steps == whole[0].steps
    if stopped.status == "interrupted":
        assert "resume to go on, bit for bit" in stopped.message
        assert np.isfinite(tausid.evaluate(stopped.model, wiener_record(100, seed=1)).rmse["y"])
    said: list = []
    again = tausid.fit(wiener_record(150), **{**QUICK, "progress": said.append}, out=tmp_path, resume=True)
    assert again.status == "completed" and same(again, whole[0])
    assert not any("fold 1" in update.note for update in said) or note.startswith("fold 1")


def test_members_of_an_ensemble_are_ranked_by_their_folds():
    options = {**QUICK, "finish_steps": 2, "workers": 1}
    result = tausid.fit(wiener_record(150), ensemble=2, keep=1, **options)
    pooled = [min(member.folds.pooled) for member in result.members]
    assert pooled == sorted(pooled) and result.model.scores == (pooled[0],)
    for member in result.members:  # the fit of its seed, bit for bit
        alone = tausid.fit(wiener_record(150), **{**QUICK, "finish_steps": 2, "seed": member.seed})
        assert same(alone, member) and alone.folds.pooled == member.folds.pooled
    figure = tausid.plots.plot_history(result.history)  # without a panel for rates, as there are none
    assert len(figure.axes) == 1 and figure.axes[0].get_xlabel() == "iteration"


def test_validation_records_take_the_place_of_folds():
    said: list = []
    settings = {"seed": 0, "hidden": (3,), "finish_steps": 3, "progress": said.append}
    result = tausid.fit(wiener_record(150), validation=wiener_record(80, seed=5), **settings)
    assert (result.config.folds, result.folds) == (0, None)
    scores = [row.validation for row in result.history]
    assert result.best_step == result.history[int(np.argmin(scores))].step
    assert f"iterations of lm, of which validation chose number {result.best_step}." in result.message
    assert [u.step for u in said] == sorted(u.step for u in said) and said[-1].step == said[-1].max_steps


def test_one_tau_per_state_says_how_many_states_there_are():
    settings = {key: value for key, value in QUICK.items() if key != "nx"}
    result = tausid.fit(wiener_record(150), tau=[1.0, 2.0, 3.0], **{**settings, "finish_steps": 1})
    assert result.config.nx == 3 and len(result.model.tau) == 3
    encoded = settle_states(tausid.recipe_config("windows", nx="auto", na=5, nb=0), Tau([1.0, 2.0, 3.0]))
    assert (encoded.nx, encoded.na, encoded.nb) == (3, 6, 0)
    auto = tausid.recipe_config()
    assert all(settle_states(auto, tau) is auto for tau in ("trained-per-state", 2.0, Tau(2.0)))


def test_members_with_a_tau_per_state_may_differ_in_their_states():
    settings = {**QUICK, "nx": "auto", "finish_steps": 1, "workers": 1, "tau": "trained-per-state"}
    result = tausid.fit(wiener_record(150), ensemble=2, **settings)
    assert all(len(np.atleast_1d(member.model.tau)) == member.config.nx for member in result.members)


def ended(problem: Problem, curves: FoldCurves | None = None, **changes) -> str:
    run = dataclasses.replace(start_run(problem), finished=True, **changes)
    return make_result(problem, run, curves).message


def test_messages_say_what_happened():
    problem = make_problem([wiener_record(60)])
    rows = (HistoryRow(1, 0.1, np.inf, np.nan, 2.0, 0.0),)
    lost = pool_iterations([FoldCurve((1.0, 1.0), 10, 1.0), FoldCurve((np.inf, np.inf), 10, 1.0)], 1)
    assert "not simulated with finite numbers in fold 2 of 2, so" in ended(problem, lost, status="diverged")
    never = pool_iterations([FoldCurve((np.inf, 1.0), 10, 1.0), FoldCurve((1.0, np.inf), 10, 1.0)], 1)
    assert "at no iteration in all of 2 folds, so" in ended(problem, never, status="diverged")
    said = ended(problem, status="diverged", history=rows)
    assert said.startswith("no simulation of the validation records stayed finite, so")
    assert ended(problem, status="diverged").startswith("no simulation of the whole training records stayed finite")
    some = pool_iterations([FoldCurve((2.0, 1.0), 10, 1.0)] * 3, 1)
    assert "1 iteration of lm, chosen by 3 folds." in ended(problem, some, status="completed", history=rows)
    validated = dataclasses.replace(problem, split=Split(problem.split.train, (wiener_record(60, seed=1),)))
    said = ended(validated, status="completed", history=rows)
    assert "1 iteration of lm, and validation prefers the model that training began with." in said


def test_no_finite_score_of_validation_records_is_a_divergence(monkeypatch):
    problem = make_problem([wiener_record(60)])
    problem = dataclasses.replace(problem, split=Split(problem.split.train, (wiener_record(60, seed=1),)))
    for module in (finishing, loop):
        monkeypatch.setattr(module, "score", lambda problem, model: np.inf)
    never = threading.Event()
    run = finish(problem, start_run(problem), most=2, parts="both", report=lambda before, now: None, interrupted=never)
    assert run.status == "diverged" and np.isfinite(run.history[-1].loss)


def test_a_start_that_does_not_simulate_ends_as_diverged():
    problem = make_problem([wiener_record(60)])
    start = problem.initial_model.state_space
    broken = eqx.tree_at(lambda m: m.f.linear, start, replace_fn=lambda a: a * jnp.nan)
    problem = dataclasses.replace(problem, initial_model=dataclasses.replace(problem.initial_model, state_space=broken))
    never = threading.Event()
    run = finish(problem, start_run(problem), most=3, parts="both", report=lambda before, now: None, interrupted=never)
    assert run.status == "diverged"
    idle = {"known": {}, "keep": lambda curves: None, "report": lambda at: None, "interrupted": never, "planned": 1}
    split = Split(problem.split.train, (wiener_record(60, seed=1),))
    trials = Trials([split], lambda config, split: dataclasses.replace(problem, split=split), **idle)
    assert np.isinf(trials.of(dataclasses.replace(problem.config, finish_steps=2)).lowest)


def test_a_fit_whose_start_does_not_simulate_says_so():
    # A thousandth of the fastest time constant per step of the clock: RK4 is far outside of its stability region.
    rng = np.random.default_rng(0)
    u = rng.standard_normal((400, 1))
    record = Record.from_arrays(u, np.zeros_like(u) + u + 0.1 * rng.standard_normal(u.shape), ts=1.0)
    settings = {"init": "random", "A_start": "-I", "nx": 2, "hidden": (3,), "finish_steps": 2, "progress": None}
    result = tausid.fit(record, tau=1e-3, seed=0, folds=0, **settings)
    assert result.status == "diverged"
    assert "no simulation of the whole training records stayed finite" in result.message


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"finish": "none"}, "`max_steps` must be at least 1 with finish='none'"),
        ({"max_steps": 10}, "`max_steps` must be 0 where folds choose the iterations of finish='lm'; got 10"),
        ({"encoder": "mlp", "init": "random", "initial_state": "encoder"}, "`finish` must have encoder='residual'"),
        ({"max_steps": 10, "finish": "none"}, "`folds` of Adam must have initial_state='encoder'"),
        ({"bias_range": -1.0}, "`bias_range` must be a zero or positive number"),
        ({"nx": "many"}, "`nx` must be a whole number of at least 1"),
        ({"nx": 0}, "`nx` must be a whole number of at least 1"),
        ({"finish": "lbfgs"}, "finish"),
        ({"finish_steps": 0}, "`finish_steps` must be a whole number of at least 1"),
    ],
)
def test_settings_of_the_second_order_are_checked(settings, rule):
    with pytest.raises(ConfigError) as refused:
        tausid.recipe_config(**settings)
    assert rule in str(refused.value)


def test_the_order_must_be_known_where_no_records_are():
    with pytest.raises(ConfigError, match="`nx` must be a number where no records are at hand; got 'auto'"):
        _ = tausid.recipe_config().order


@pytest.mark.parametrize(
    ("given", "recipe", "folds"),
    [
        ({"settings": {}}, "default", 4),
        ({"settings": {}, "records": [wiener_record(100)]}, "default", 2),
        ({"settings": {}, "records": [wiener_record(60)]}, "default", 0),
        ({"settings": {}, "validation": wiener_record(60)}, "default", 0),
        ({"settings": {"validation_fraction": 0.1}}, "default", 0),
        ({"settings": {"protocol": "paper"}}, "default", 0),
        ({"settings": {}, "physics": "CascadedTanks"}, "default", 4),
        ({"settings": {"folds": 0}, "physics": "CascadedTanks"}, "default", 0),
        ({"settings": {}, "records": [Record.from_arrays(np.zeros((9, 0)), np.arange(9.0), ts=1.0)]}, "windows", 0),
    ],
)
def test_the_default_recipe_gives_way_to_what_it_cannot_do(given, recipe, folds):
    config = choose_settings("default", **given)
    assert (config.recipe, config.folds) == (recipe, folds)
    assert isinstance(config, Config)


def test_a_constant_channel_has_no_remedy_but_its_own():
    record = wiener_record(200)
    with pytest.raises(DataError, match=r"^input 'u' must vary .* Leave the channel out, or excite it\.$"):
        tausid.fit(dataclasses.replace(record, u=np.ones_like(record.u)), **QUICK)


def test_an_initial_state_must_have_something_to_be_estimated_from():
    record = wiener_record(100)
    model = tausid.fit(record, **{**QUICK, "folds": 0, "finish_steps": 1}).model
    late = dataclasses.replace(record, y=np.where(np.arange(100)[:, None] < 20, np.nan, record.y), name="late")
    for ask in (model.simulate, model.check):
        with pytest.raises(DataError, match="'late' must have measured outputs among samples 0 to 19, for the initial"):
            ask(late)
    assert model.simulate(late, x0=np.zeros(2)).status == "ok"
    # A stretch that begins so is not held out.
    gap = dataclasses.replace(record, y=np.where(np.abs(np.arange(100) - 60)[:, None] <= 10, np.nan, record.y))
    config = dataclasses.replace(model.config, folds=2)
    assert [len(fold.validation) for fold in hold_out(Split((wiener_record(200), gap), ()), config)] == [2, 1]
