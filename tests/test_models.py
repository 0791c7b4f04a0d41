from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from tausid import Adaptive, ConfigError, FixedStep, Structure, Tau
from tausid.engine.choice import Engine
from tausid.engine.field import VectorField
from tausid.engine.library import missing
from tausid.engine.scan import rollout_scan
from tausid.model.build import Weights, build_state_space
from tausid.model.free_run import run, why_not_compiled
from tausid.model.initial import Encoder, FreeState
from tausid.model.state_space import StateSpace


def model(tau: float | list[float] = 2.0, weights: Weights | None = None, **structure) -> StateSpace:
    defaults = {"nx": 3, "hidden": (8, 8), "activation": "tanh", "initial_state": "encoder"}
    structure = Structure(**{**defaults, **structure})
    weights = weights or Weights(0.5)
    return build_state_space(structure, Tau(tau), weights, nu=2, ny=1, n_records=2, rng=np.random.default_rng(5))


INPUTS = np.random.default_rng(0).normal(size=(60, 2))
X0 = np.array([0.3, -0.2, 0.1])
DT = np.full(59, 0.4)


def simulate_64(field, output, x0, dt) -> np.ndarray:
    """Outputs in double precision for a given right-hand side and time steps."""
    u = jnp.asarray(INPUTS)
    x = rollout_scan(field, jnp.asarray(x0)[None], u[:, None], jnp.asarray(dt)[:, None], FixedStep())[:, 0]
    return np.asarray(output(x, u))


def test_the_three_views_of_normalization_give_the_same_outputs():
    with jax.enable_x64(True):
        m = model(tau=2.0)
        network = lambda x, u: m.f(jnp.concatenate([x, u], axis=-1))  # noqa: E731
        scaled_derivative = simulate_64(lambda x, u: network(x, u) / 2.0, m.output, X0, DT)
        scaled_state = simulate_64(lambda z, u: network(z / 2.0, u), lambda z, u: m.output(z / 2.0, u), 2.0 * X0, DT)
        scaled_time = simulate_64(network, m.output, X0, DT / 2.0)
        # The same real numbers in another order of operations: rounding of double precision only.
        np.testing.assert_allclose(scaled_state, scaled_derivative, rtol=1e-12)
        np.testing.assert_allclose(scaled_time, scaled_derivative, rtol=1e-12)
        np.testing.assert_allclose(simulate_64(m.field, m.output, X0, DT), scaled_derivative, rtol=1e-12)


@pytest.mark.parametrize("tau", [2.0, [0.5, 2.0, 7.0]])
def test_tau_folded_into_the_output_layer_is_the_same_model(tau):
    with jax.enable_x64(True):
        m = model(tau=tau)
        rate = (1.0 / jnp.broadcast_to(jnp.asarray(tau), (3,)))[:, None]
        folded = eqx.tree_at(lambda n: (n.linear, n.weights[-1]), m.f, (rate * m.f.linear, rate * m.f.weights[-1]))
        np.testing.assert_allclose(
            simulate_64(VectorField(folded, jnp.ones(())), m.output, X0, DT),
            simulate_64(m.field, m.output, X0, DT),
            rtol=1e-12,
        )


def test_gradients_agree_with_finite_differences():
    with jax.enable_x64(True):
        m = model()
        weights, rest = eqx.partition(m, eqx.is_inexact_array)

        def error(w):
            whole = eqx.combine(w, rest)
            return jnp.sum(simulate_64_jax(whole) ** 2)

        def simulate_64_jax(whole):
            u = jnp.asarray(INPUTS)
            x = rollout_scan(whole.field, jnp.asarray(X0)[None], u[:, None], jnp.asarray(DT)[:, None], FixedStep())
            return whole.output(x[:, 0], u)

        # Central differences with an optimal step are good to about 1e-9 of the largest gradient.
        jax.test_util.check_grads(error, (weights,), order=1, modes=["rev"], eps=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "structure",
    [{}, {"network": "both", "hidden": (5,), "degree": 2}, {"network": "polynomial", "nonlinear_g": False},
     {"bias": True, "feedthrough": False, "activation": "softplus"}],
    ids=["hidden", "both", "linear g", "no feedthrough"],
)  # fmt: skip
@pytest.mark.parametrize("tau", [2.0, [0.5, 2.0, 7.0]])
def test_the_compiled_library_and_jax_simulate_alike(structure, tau):
    with jax.enable_x64(True):
        m = dataclasses.replace(model(tau, Weights(0.2, 0.2), **structure), limits=((-0.3, np.inf),))
        assert why_not_compiled(m, Engine()) is None or missing()
        how, arguments = FixedStep("rk4", 2, ("zero", "first")), (X0, INPUTS, DT)
        compiled, scan = (run(m, *arguments, how, Engine(name)) for name in ("auto", "scan"))
    # The same sums in another order; the states stay below 10 over 59 steps.
    for one, other in zip(compiled, scan, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def test_what_the_compiled_library_lacks_is_named():
    assert "gelu" in why_not_compiled(model(activation="gelu"), Engine())
    assert "JAX" in why_not_compiled(model(), Engine("scan"))


def test_an_adaptive_solver_confirms_the_fixed_step():
    m = model(tau=2.0)
    arguments = (X0, INPUTS, DT)
    fixed, _ = run(m, *arguments, FixedStep("rk4", 4), Engine())
    adaptive, _ = run(m, *arguments, Adaptive(1e-6, 1e-6), Engine())
    coarse, _ = run(m, *arguments, FixedStep("euler", 1), Engine())
    # Single precision accumulates some 1e-6 over 59 steps; Euler is off by far more, so the check can fail.
    np.testing.assert_allclose(fixed, adaptive, atol=2e-5)
    assert np.abs(coarse - adaptive).max() > 1e-3


def test_an_adaptive_solver_that_runs_out_of_steps_gives_nan():
    x, _ = run(model(), X0, INPUTS, DT, Adaptive(1e-7, 1e-7, max_steps=1), Engine())
    assert np.isnan(x[1:]).all()


@pytest.mark.parametrize("tolerance", ["rtol", "atol"])
def test_tolerances_must_be_positive(tolerance):
    with pytest.raises(ConfigError, match=f"`{tolerance}` must be positive; got 0"):
        Adaptive(**{tolerance: 0.0})


@pytest.mark.parametrize(("na", "nb"), [(0, 0), (0, 3), (2, 0), (5, 5), (1, 4)])
def test_the_encoder_sees_the_last_outputs_and_inputs(na, nb):
    m = model(na=na, nb=nb)
    assert isinstance(m.initial, Encoder)
    assert m.initial.n_past == max(na, nb)
    rng = np.random.default_rng(1)
    past_u, past_y = rng.normal(size=(max(na, nb), 4, 2)), rng.normal(size=(max(na, nb), 4, 1))
    x = m.initial(jnp.asarray(past_u), jnp.asarray(past_y), jnp.zeros(4, jnp.int32))
    assert x.shape == (4, 3)
    # What is older than na outputs and nb inputs must not matter.
    past_u[: max(na, nb) - nb], past_y[: max(na, nb) - na] = 99.0, 99.0
    again = m.initial(jnp.asarray(past_u), jnp.asarray(past_y), jnp.zeros(4, jnp.int32))
    np.testing.assert_array_equal(x, again)


def test_a_free_state_belongs_to_its_record():
    m = model(initial_state="free")
    assert isinstance(m.initial, FreeState)
    m = eqx.tree_at(lambda t: t.initial.x0, m, jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    x = m.initial(jnp.zeros((0, 3, 2)), jnp.zeros((0, 3, 1)), jnp.array([1, 0, 1]))
    np.testing.assert_array_equal(x[:, 0], [4.0, 1.0, 4.0])


def test_the_start_value_of_a_is_a_named_choice():
    zero_mean = model(weights=Weights(0.01, A="zero-mean"))
    minus_identity = model(weights=Weights(0.01, A="-I"))
    spread = np.linalg.eigvalsh(np.asarray(model(weights=Weights(1e-9, A="-MM'")).A))
    assert -3.0 <= spread[0] < spread[-1] < 0  # the trace of MM' is below nx; the eigenvalues differ
    assert np.abs(zero_mean.A).max() <= 0.01
    np.testing.assert_allclose(minus_identity.A - zero_mean.A, -np.eye(3), atol=1e-7)  # rounding of -1 + 0.01


def test_a_tau_per_state_must_fit_the_states():
    with pytest.raises(ConfigError, match="one number or one per state; got 2 for 3 states"):
        model(tau=[1.0, 2.0])


def test_the_dae_network_is_there_only_when_it_is_asked_for():
    assert model().dae is None
    assert model(dae=True).dae is not None


def test_a_polynomial_model_simulates():
    m = model(network="polynomial", weights=Weights(0.01))
    x, y = run(m, X0, INPUTS, DT, FixedStep(), Engine())
    assert x.shape == (60, 3)
    assert np.isfinite(y).all()


def test_outputs_of_a_long_trajectory_are_computed_in_pieces(monkeypatch):
    import tausid.model.free_run_jax as free_run

    m, rng = model(), np.random.default_rng(0)
    x, u = jnp.asarray(rng.normal(size=(50, 3)), jnp.float32), jnp.asarray(rng.normal(size=(50, 2)), jnp.float32)
    monkeypatch.setattr(free_run, "LONG", 20)
    monkeypatch.setattr(free_run, "PIECE", 16)
    # The same products in another order of summation: single precision.
    np.testing.assert_allclose(free_run._outputs(m, x, u), m.output(x, u), rtol=1e-5, atol=1e-6)
