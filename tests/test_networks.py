from __future__ import annotations

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from tausid.engine.networks import ACTIVATIONS, MLP, Network, activate, monomials
from tausid.errors import ConfigError


def network(n_in: int = 3, n_out: int = 2, **changes) -> Network:
    settings = {"hidden": (8, 7), "activation": "leaky_relu", "weight_range": 1.0, **changes}
    return Network.random(np.random.default_rng(0), n_in, n_out, **settings)


def test_hidden_layers_alone_are_the_papers_formula():
    net = network(bias_range=1.0)
    z = np.random.default_rng(0).normal(size=3)
    s = lambda v: np.where(v > 0, v, 0.01 * v)  # noqa: E731 - the paper's sigma
    w3, w2, w1 = net.weights
    b3, b2 = net.biases
    np.testing.assert_allclose(net(z), net.linear @ z + w1 @ s(w2 @ s(w3 @ z + b3) + b2), rtol=1e-14)


def test_monomials_alone_are_a_polynomial():
    net = network(2, 1, hidden=(), degree=3)
    a, b = 0.7, -1.3
    terms = np.array([a * a, a * b, b * b, a**3, a * a * b, a * b * b, b**3])
    np.testing.assert_allclose(net(np.array([a, b])), net.linear @ [a, b] + net.coefficients @ terms, rtol=1e-14)


def test_all_parts_together_are_their_sum():
    net, z = network(degree=2), np.random.default_rng(1).normal(size=(4, 3))
    whole = dataclasses.replace(net, bias=np.array([0.5, -2.0]))
    hidden = dataclasses.replace(net, coefficients=None)
    polynomial = dataclasses.replace(net, weights=(), biases=())
    linear = Network(net.linear)
    np.testing.assert_allclose(whole(z), hidden(z) + polynomial(z) - linear(z) + whole.bias, rtol=1e-13)
    np.testing.assert_array_equal(linear(z), z @ net.linear.T)


@pytest.mark.parametrize("parts", [{"degree": 2}, {"hidden": (), "degree": 3}, {"hidden": (4,)}, {"hidden": ()}])
def test_features_are_what_the_readout_reads(parts):
    net, z = network(**{"bias": True, **parts}), np.random.default_rng(1).normal(size=(4, 3))
    np.testing.assert_allclose(net(z), z @ net.linear.T + net.features(z) @ net.readout.T + net.bias, rtol=1e-13)
    doubled = net.with_readout(2.0 * net.readout)
    np.testing.assert_allclose(doubled(z) - net(z), net.features(z) @ net.readout.T, rtol=1e-12, atol=1e-14)


def test_initial_weights_are_uniform_and_biases_zero():
    net = network(hidden=(64, 64), weight_range=0.01, bias=True)
    weights = np.concatenate([np.ravel(net.linear), *(np.ravel(w) for w in net.weights)])
    assert np.abs(weights).max() <= 0.01
    # The deviation of U[-a, a] is a / sqrt(3); 4.6 thousand draws know it to about 1 %, so 5 % is safe.
    np.testing.assert_allclose(weights.std(), 0.01 / np.sqrt(3), rtol=0.05)
    assert all(np.all(b == 0) for b in (*net.biases, net.bias))
    assert len(net.biases) == 2  # the layer that reads the last of them has none


def test_an_mlp_has_a_bias_on_its_output_layer():
    mlp = MLP.random(np.random.default_rng(1), (3, 4, 1), activation="tanh", weight_range=0.1)
    assert len(mlp.biases) == 2
    shifted = MLP(mlp.weights, (mlp.biases[0], mlp.biases[1] + 5.0), mlp.activation)
    np.testing.assert_allclose(shifted(np.ones(3)) - mlp(np.ones(3)), 5.0, rtol=1e-14)


def test_leading_axes_are_batches():
    net, z = network(degree=2), np.random.default_rng(2).normal(size=(4, 5, 3))
    np.testing.assert_allclose(net(z), [[net(point) for point in row] for row in z], rtol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_numpy_and_jax_agree(name):
    with jax.enable_x64(True):
        z = np.concatenate([np.linspace(-40.0, 40.0, 801), [0.0, 1e-8, -1e-8]])
        # Rounding: numpy's sigmoid is 1 - (1 - small) below zero, good to 1e-16 of its range.
        np.testing.assert_allclose(activate(name, z), activate(name, jnp.asarray(z)), rtol=1e-13, atol=1e-14)
        net, points = network(activation=name, degree=3, bias=True), z[:24].reshape(8, 3) / 10
        np.testing.assert_allclose(net(points), net(jnp.asarray(points)), rtol=1e-11, atol=1e-11)
        assert isinstance(net(points), np.ndarray) and isinstance(net(jnp.asarray(points)), jax.Array)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_gives_finite_gradients(name):
    net = network(activation=name)
    gradient = jax.grad(lambda z: net(z).sum())(jnp.linspace(-3.0, 3.0, 3))
    assert np.all(np.isfinite(gradient))


def test_a_network_is_a_pytree_of_its_arrays():
    net = network(degree=2)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(net)[0]]
    assert paths == [
        ".linear", ".weights[0]", ".weights[1]", ".weights[2]", ".biases[0]", ".biases[1]", ".coefficients",
    ]  # fmt: skip
    again = jax.tree.map(lambda array: 2 * array, net)
    assert (again.degree, again.activation, again.bias) == (2, "leaky_relu", None)
    gradient = jax.grad(lambda n: n(jnp.ones(3)).sum())(jax.tree.map(jnp.asarray, net))
    np.testing.assert_allclose(gradient.linear, np.ones((2, 3)))


def test_trees_that_were_defined_before_jax_was_imported_are_pytrees_after_it():
    code = (
        "import sys, numpy as np; from tausid.engine.networks import Network; net = Network(np.ones((2, 3)));"
        "assert 'jax' not in sys.modules; import jax; from tausid.engine.tree import register; register();"
        "print(len(jax.tree.leaves(net)), jax.tree.leaves(net)[0].shape)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1 (2, 3)"


def test_shapes_are_checked_in_the_tests():
    with pytest.raises(TypeCheckError, match="linear"):
        Network(np.ones(3))
    with pytest.raises(TypeCheckError, match="bias"):
        Network(np.ones((2, 3)), bias=np.ones(3))


def test_degree_one_has_no_monomials():
    assert monomials(np.ones((4, 3)), 1).shape == (4, 0)


def test_an_unknown_activation_is_named():
    with pytest.raises(ConfigError, match="unknown activation 'rely'.*Did you mean 'relu'"):
        network(activation="rely")
