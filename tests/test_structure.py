"""Structure that generalizes: A negative definite by construction, contraction, and small nonlinear parts."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import SMALL, wiener_record
from tausid.training.objective import nonlinear_weights, state_jacobians
from tausid.training.protocols import split_records
from tausid.training.setup import make_problem
from tausid.training.starting import find_start, in_dissipative_basis

import tausid
from tausid import FixedStep, Tau, estimate_bla, recipe_config
from tausid.model.build import build_state_space
from tausid.model.state_space import SLOWEST, StateSpace, free_parameters, negative_definite
from tausid.training.losses import contraction_penalty, weight_decay


def build(**settings) -> StateSpace:
    config = recipe_config("windows", **{"nx": 3, "hidden": (5,), **settings})
    return build_state_space(config, Tau(2.0), nu=1, ny=1, n_records=1, rng=np.random.default_rng(0))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_is_negative_definite_whatever_its_parameters_are(n):
    rng = np.random.default_rng(n)
    with jax.enable_x64(True):
        for size in (0.0, 1e-3, 1.0, 1e3):
            A = np.asarray(negative_definite(jnp.asarray(size * rng.normal(size=(n, n)))))
            # The rounding of L L' grows with its square.
            assert np.linalg.eigvalsh((A + A.T) / 2).max() <= -SLOWEST + 1e-14 * size**2 + 1e-15


def test_every_matrix_far_enough_inside_has_parameters():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for _ in range(20):
            root, other = rng.normal(size=(2, 4, 4))
            A = -root @ root.T - 2 * SLOWEST * np.eye(4) + other - other.T
            np.testing.assert_allclose(negative_definite(free_parameters(A)), A, atol=1e-12)  # rounding of a Cholesky
        unstable = np.array([[1.0, 5.0], [0.0, -1.0]])
        nearest = np.asarray(negative_definite(free_parameters(unstable)))
    assert np.linalg.eigvalsh(nearest + nearest.T).max() == pytest.approx(-4 * SLOWEST)


def test_a_model_starts_where_it_is_told_to_and_stays_negative_definite_in_training(tmp_path):
    free, bound = build(), build(A_form="negative-definite")
    np.testing.assert_allclose(bound.A, free.A, atol=1e-6)  # -I plus small weights; single precision
    result = tausid.fit(wiener_record(200), tau=2.0, seed=0, **SMALL, A_form="negative-definite", learning_rate=0.1)
    A = np.asarray(result.last_model.state_space.A, float)
    assert np.linalg.eigvalsh(A + A.T).max() < 0
    assert not np.allclose(A, bound.A[:2, :2], atol=0.05)  # it has moved
    loaded = tausid.load_model(result.model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(loaded.simulate(wiener_record(60)).y, result.model.simulate(wiener_record(60)).y)


def test_a_linear_model_in_its_dissipative_basis_is_the_same_system():
    record = wiener_record(300)
    bla = estimate_bla(record, nx=2)
    other = in_dissipative_basis(bla)
    assert np.linalg.eigvalsh(other.A + other.A.T).max() < 0 < np.linalg.eigvalsh(bla.A + bla.A.T).max() + 1.0
    np.testing.assert_allclose(other.simulate(record, other.x0[0]), bla.simulate(record, bla.x0[0]), atol=1e-9)


def test_grown_from_zero_the_model_starts_as_the_linear_approximation():
    record = wiener_record(300)
    settings = {"init": "bla", "nonlinear_start": "zero", "validation_fraction": 0.0, "horizon": 20, "nx": 3}
    for form in ("free", "negative-definite"):
        config = recipe_config("windows", **settings, A_form=form)
        split = split_records(record, config, validation=None, test=None)
        model = make_problem(config, find_start("bla", split.train, config), split).initial_model
        bla = estimate_bla(record, nx=2)
        x0 = (bla if form == "free" else in_dissipative_basis(bla)).x0[0]
        simulated = model.simulate(record, x0=np.append(x0, 0.0), integrator=FixedStep("rk4", 8, "zero"))
        # Single precision; eight substeps make the integration exact to 1e-7.
        np.testing.assert_allclose(simulated.y, bla.simulate(record, bla.x0[0]), atol=2e-5)


@pytest.mark.parametrize("network", ["mlp", "polynomial"])
def test_nonlinear_parts_that_start_at_zero_grow(network):
    settings = {**SMALL, "network": network, "nonlinear_start": "zero"}
    model = build(network=network, nonlinear_start="zero")
    z = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)))
    np.testing.assert_allclose(model.f(z), z @ model.f.linear.T, atol=1e-6)
    trained = tausid.fit(wiener_record(200), tau=2.0, seed=0, **settings).last_model.state_space
    z = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))
    assert np.abs(np.asarray(trained.f(z) - z @ trained.f.linear.T)).max() > 1e-4


def test_decay_of_the_nonlinear_parts_leaves_the_linear_ones_alone():
    model = build()
    slope = jax.grad(lambda f: weight_decay(nonlinear_weights(eqx.tree_at(lambda m: m.f, model, f))))(model.f)
    assert not np.asarray(slope.linear).any()
    assert all(np.asarray(weight).any() for weight in slope.mlp.weights)


def test_decay_of_the_nonlinear_parts_makes_them_small():
    def size(model: tausid.Model) -> float:
        return float(weight_decay(nonlinear_weights(model.state_space)))

    free, decayed = (
        tausid.fit(wiener_record(200), tau=2.0, seed=0, **{**SMALL, "max_steps": 300}, nonlinear_decay=decay)
        for decay in (0.0, 0.1)
    )
    assert size(decayed.last_model) < 0.1 * size(free.last_model)


def test_the_contraction_penalty_is_the_mean_of_the_largest_eigenvalues_above_zero():
    jacobians = jnp.array([[[-1.0, 0.0], [0.0, 2.0]], [[-1.0, 4.0], [-4.0, -1.0]], [[0.0, 2.0], [0.0, 0.0]]])
    # 2; a rotation that contracts, 0; and the shear's symmetric part [[0, 1], [1, 0]], 1.
    assert float(contraction_penalty(jacobians)) == pytest.approx((2 + 0 + 1) / 3, rel=1e-6)
    slope = jax.grad(contraction_penalty)(jnp.eye(2)[None])  # equal eigenvalues: any of them, and finite
    assert float(jnp.trace(slope[0])) == pytest.approx(1.0)


def test_jacobians_along_a_trajectory_are_those_of_f():
    model = build()
    along = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2, 4)))
    jacobians = state_jacobians(model, along)
    assert jacobians.shape == (8, 3, 3)
    z, step = along[1, 1], 1e-2
    moved = jnp.eye(4)[:3] * step
    differences = (model.f(z + moved) - model.f(z - moved)).T / (2 * step)
    np.testing.assert_allclose(jacobians[3], differences, atol=1e-4)  # single precision over a step of 1e-2


def test_the_penalty_makes_trajectories_contract():
    def stretch(model: tausid.Model) -> float:
        record = wiener_record(200)
        along = np.concatenate([model.simulate(record).x[5:], model.scaling.normalize_u(record.u[5:])], axis=1)
        J = np.asarray(state_jacobians(model.state_space, jnp.asarray(along)[:, None]), float)
        return float(np.linalg.eigvalsh((J + J.swapaxes(1, 2)) / 2).max())

    settings = {**SMALL, "max_steps": 200, "A_start": "zero-mean", "learning_rate": 1e-2}
    free, bound = (
        tausid.fit(wiener_record(200), tau=2.0, seed=0, **settings, contraction_weight=weight) for weight in (0.0, 10.0)
    )
    assert stretch(free.last_model) > 0.1  # an oscillator's matrix is not negative definite in most bases
    assert stretch(bound.last_model) < 0.05  # a hinge: it ends where the penalty does, give or take Adam's last steps
