from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tausid import Structure, Tau
from tausid.model.build import Weights, build_state_space
from tausid.model.state_space import StateSpace
from tausid.training.adam import decayed_weights
from tausid.training.losses import simulation_error, weight_decay
from tausid.training.paper import dae_penalty, leading_minors, negative_definite_barrier, sigmoid_barrier
from tausid.training.trainable import trainable


def build(tau: Tau, n_records: int = 1, **structure) -> StateSpace:
    parts = Structure(nx=2, hidden=(3,), **structure)
    return build_state_space(parts, tau, Weights(), nu=1, ny=1, n_records=n_records, rng=np.random.default_rng(0))


def test_the_simulation_error_is_the_mean_square_over_measured_samples():
    y = jnp.array([[[1.0]], [[2.0]], [[0.0]]])
    y_hat = jnp.array([[[0.0]], [[4.0]], [[7.0]]])
    measured = jnp.array([[[True]], [[True]], [[False]]])
    assert float(simulation_error(y_hat, y, measured)) == (1 + 4) / 2


def test_a_missing_sample_gives_no_gradient():
    measured = jnp.array([[[True]], [[False]]])
    y = jnp.zeros((2, 1, 1))
    gradient = jax.grad(lambda e: simulation_error(e, y, measured))(jnp.ones((2, 1, 1)))
    np.testing.assert_array_equal(gradient[:, 0, 0], [2.0, 0.0])


def test_the_dae_penalty_is_the_mean_square():
    assert float(dae_penalty(jnp.array([[1.0], [3.0]]))) == 5.0


def test_leading_minors_of_a_known_matrix():
    matrix = jnp.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    np.testing.assert_allclose(leading_minors(matrix), [2.0, 3.0, 4.0], rtol=1e-6)  # the tridiagonal's n + 1


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_barrier_is_zero_just_where_the_matrix_is_negative_definite(n):
    rng = np.random.default_rng(n)
    seen = set()
    with jax.enable_x64(True):
        compiled = jax.jit(negative_definite_barrier)
        for _ in range(200):
            A = rng.normal(size=(n, n)) - rng.uniform(0, 3) * np.eye(n)
            negative = np.linalg.eigvalsh(A + A.T).max() < 0
            barrier = float(compiled(jnp.asarray(A)))
            assert (barrier == 0.0) == negative
            assert barrier == 0.0 or barrier >= 1.0
            seen.add(bool(negative))
    assert seen == {True, False}


def test_the_barrier_holds_on_its_edge():
    assert float(negative_definite_barrier(jnp.zeros((2, 2)))) == 1.0
    assert float(negative_definite_barrier(jnp.diag(jnp.array([-1.0, 0.0])))) == 1.0


def test_adam_follows_the_barrier_from_the_papers_start_to_a_negative_definite_matrix():
    A = jax.random.uniform(jax.random.key(0), (4, 4), minval=-0.01, maxval=0.01)
    adam = optax.adam(3e-3)
    state = adam.init(A)
    assert np.linalg.eigvalsh(A + A.T).max() > 0
    slope = jax.jit(jax.grad(lambda a: 1e12 * negative_definite_barrier(a)))
    for _ in range(200):
        update, state = adam.update(slope(A), state)
        A = A + update
    assert np.linalg.eigvalsh(A + A.T).max() < 0


def test_the_smooth_barrier_is_a_step_from_one_to_zero_per_minor():
    assert float(sigmoid_barrier(jnp.zeros((1, 1)))) == 0.5  # in the middle of its only step
    assert float(sigmoid_barrier(10.0 * jnp.eye(1))) == pytest.approx(1.0)
    assert float(sigmoid_barrier(-10.0 * jnp.eye(3))) == pytest.approx(0.0, abs=1e-6)
    assert float(jax.grad(lambda a: sigmoid_barrier(a * jnp.eye(2)))(-0.05)) > 0  # pushes on beyond the edge


def test_weight_decay_sums_all_squares():
    assert float(weight_decay((jnp.array([1.0, 2.0]), None, {"b": jnp.array([[3.0]])}))) == 14.0


def test_weight_decay_leaves_tau_and_free_states_alone():
    model = build(Tau(5.0), n_records=3, initial_state="free")
    decayed = sum(np.size(leaf) for leaf in jax.tree.leaves(decayed_weights(model)))
    networks = (2 * 3 + 3 * 3 + 3 + 2 * 3) + (1 * 3 + 3 * 3 + 3 + 1 * 3)  # linear, W2, b2, W1 of f and of g
    assert decayed == networks


def test_tau_is_trained_only_where_it_is_trainable():
    for flag in (True, False):
        model = build(Tau(5.0, trainable=flag), initial_state="encoder")
        assert trainable(model).tau.factor is flag
        assert trainable(model).f.linear is True
