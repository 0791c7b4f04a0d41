"""The samples before windows, side by side: missing ones, and those off the clock."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def fill_past(
    y: Float[Array, "n_past B ny"], measured: Bool[Array, "n_past B ny"], lag: Float[Array, "n_past B"] | None
) -> Float[Array, "n_past B ny"]:
    """Past outputs without holes: missing ones between two measured ones are interpolated over time."""
    n = y.shape[0]
    places = jnp.arange(n)[:, None, None]
    before = jax.lax.cummax(jnp.where(measured, places, -1), axis=0)
    after = jax.lax.cummin(jnp.where(measured, places, n), axis=0, reverse=True)
    between = ~measured & (before >= 0) & (after < n)
    ago = jnp.arange(n, 0, -1, dtype=y.dtype)[:, None] + (jnp.zeros((n, 1)) if lag is None else lag)
    times = jnp.broadcast_to(-ago[..., None], y.shape)
    left, right = jnp.maximum(before, 0), jnp.minimum(after, n - 1)
    t0, t1 = jnp.take_along_axis(times, left, 0), jnp.take_along_axis(times, right, 0)
    y0, y1 = jnp.take_along_axis(y, left, 0), jnp.take_along_axis(y, right, 0)
    share = (times - t0) / jnp.where(between, t1 - t0, 1.0)
    return jnp.where(between, y0 + share * (y1 - y0), y)


def at_nominal_times(values: Float[Array, "n_past B n"], lag: Float[Array, "n_past B"]) -> Float[Array, "n_past B n"]:
    """Past samples interpolated at n, n - 1, ..., 1 median steps ago; the newest and the oldest one beyond the ends."""
    n = values.shape[0]
    nominal = -jnp.arange(n, 0, -1, dtype=lag.dtype)
    interpolate = jax.vmap(jnp.interp, in_axes=(None, None, 1), out_axes=1)  # over channels
    return jax.vmap(interpolate, in_axes=(None, 1, 1), out_axes=1)(nominal, nominal[:, None] - lag, values)
