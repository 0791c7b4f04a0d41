from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tausid.engine.networks import ACTIVATIONS, MLP, Polynomial, ResidualMLP, monomials
from tausid.errors import ConfigError


def network(**changes) -> ResidualMLP:
    settings = {"hidden": (8, 7), "activation": "leaky_relu", "weight_range": 0.01, **changes}
    return ResidualMLP.random(np.random.default_rng(0), 3, 2, **settings)


def test_the_residual_network_is_the_papers_formula():
    net = network(weight_range=1.0)
    z = np.random.default_rng(0).normal(size=3)
    s = lambda v: np.where(v > 0, v, 0.01 * v)  # noqa: E731 - the paper's sigma
    w3, w2, w1 = map(np.asarray, net.mlp.weights)
    b3, b2 = map(np.asarray, net.mlp.biases)
    expected = net.linear @ z + w1 @ s(w2 @ s(w3 @ z + b3) + b2)
    np.testing.assert_allclose(net(jnp.asarray(z)), expected, rtol=1e-5)  # single precision


def test_initial_weights_are_uniform_and_biases_zero():
    net = network(hidden=(64, 64))
    weights = np.concatenate([np.ravel(net.linear), *(np.ravel(w) for w in net.mlp.weights)])
    assert np.abs(weights).max() <= 0.01
    # The deviation of U[-a, a] is a / sqrt(3); 4.6 thousand draws know it to about 1 %, so 5 % is safe.
    np.testing.assert_allclose(weights.std(), 0.01 / np.sqrt(3), rtol=0.05)
    assert all(np.all(b == 0) for b in net.mlp.biases)
    assert len(net.mlp.biases) == 2  # the output layer has none


def test_a_bias_on_the_output_layer_is_added():
    mlp = MLP.random(np.random.default_rng(1), (3, 4, 1), activation="tanh", weight_range=0.1, output_bias=True)
    assert len(mlp.biases) == 2
    shifted = MLP(mlp.weights, (mlp.biases[0], mlp.biases[1] + 5.0), mlp.activation)
    z = jnp.ones(3)
    np.testing.assert_allclose(shifted(z) - mlp(z), 5.0, rtol=1e-6)


def test_leading_axes_are_batches():
    net = network()
    z = jax.random.normal(jax.random.key(2), (4, 5, 3))
    one_by_one = jax.vmap(jax.vmap(net))(z)
    np.testing.assert_allclose(net(z), one_by_one, atol=1e-7)  # single precision, values about 0.01


def test_a_polynomial_is_its_monomials():
    poly = Polynomial.random(np.random.default_rng(3), 2, 1, degree=3, weight_range=1.0)
    a, b = 0.7, -1.3
    terms = np.array([a * a, a * b, b * b, a**3, a * a * b, a * b * b, b**3])
    expected = poly.linear @ np.array([a, b]) + poly.coefficients @ terms
    np.testing.assert_allclose(poly(jnp.array([a, b])), expected, rtol=1e-5)  # single precision


def test_degree_one_has_no_monomials():
    assert monomials(jnp.ones((4, 3)), 1).shape == (4, 0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_gives_finite_gradients(name):
    net = network(activation=name)
    gradient = jax.grad(lambda z: net(z).sum())(jnp.linspace(-3.0, 3.0, 3))
    assert np.all(np.isfinite(gradient))


def test_an_unknown_activation_is_named():
    with pytest.raises(ConfigError, match="unknown activation 'rely'.*Did you mean 'relu'"):
        network(activation="rely")
