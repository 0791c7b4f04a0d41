"""What the input does between two samples."""

from __future__ import annotations

import numpy as np

from tausid.errors import ConfigError, unknown_name
from tausid.shapes import Array, Float

# The share of the way to the next sample that the input has gone at the end of a step.
HOLDS = {"zero": 0.0, "first": 1.0}


def hold_slopes(hold: str | tuple[str, ...] | None, nu: int) -> tuple[float, ...]:
    """How far each input moves towards its next sample within a step: 0 (zero-order) or 1 (first-order)."""
    given = hold if isinstance(hold, tuple) else (hold or "zero",)
    names = given if isinstance(hold, tuple) else given * nu
    for name in given:
        if name not in HOLDS:
            raise ConfigError(unknown_name("hold", name, HOLDS))
    if len(names) != nu:
        raise ConfigError(f"`hold` must be one name, or one per input; got {len(names)} for {nu} inputs.")
    return tuple(HOLDS[name] for name in names)


def held_input(
    slopes: tuple[float, ...],
    u_now: Float[Array, "*B nu"],
    u_next: Float[Array, "*B nu"],
    fraction: Array | float,
) -> Float[Array, "*B nu"]:
    """The input at a fraction of a step: `u_k + slope * fraction * (u_{k+1} - u_k)`."""
    if not any(slopes):
        return u_now
    return u_now + fraction * np.asarray(slopes, u_now.dtype) * (u_next - u_now)
