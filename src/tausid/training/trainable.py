"""Which arrays of a model training may change, for JAX."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import PyTree

from tausid.engine.tree import register
from tausid.model.state_space import StateSpace

register()


def trainable(model: StateSpace) -> PyTree[bool]:
    """Which leaves of a model could be trained: all arrays, and of tau its factor where it is trainable.

    Known equations say what the outputs are; where nothing corrects them their parameters stay as they were fitted.
    """
    arrays = jax.tree.map(eqx.is_inexact_array, model)
    arrays = eqx.tree_at(lambda m: (m.tau.factor, m.tau.start), arrays, (model.tau.trainable, False))
    if model.physics is None:
        return arrays
    corrected = model.physics.trainable
    fixed = jax.tree.map(lambda _: False, (arrays.physics.units, arrays.g))
    arrays = eqx.tree_at(lambda m: (m.physics.units, m.g), arrays, fixed)
    return arrays if corrected else eqx.tree_at(lambda m: (m.f.linear, m.physics.free), arrays, (False, False))
