"""Which implementation computes: `fused` where it can, `scan` elsewhere, or the one that was asked for."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Array, Float

from tausid.engine.choice import AUTO, Engine
from tausid.engine.field import VectorField
from tausid.engine.fused import (
    evaluate_fused,
    fused_missing,
    refuse_fused,
    rollout_fused,
    why_not_fused,
    why_not_network,
)
from tausid.engine.integrators import FixedStep
from tausid.engine.networks import Network
from tausid.engine.scan import rollout_scan


def rollout(
    field: Callable[[Array, Array], Array],
    x0: Float[Array, "B nx"],
    u: Float[Array, "J B nu"],
    dt: Float[Array, "J-1 B"],
    integrator: FixedStep,
    engine: Engine = AUTO,
) -> Float[Array, "J B nx"]:
    """Integrate a batch of trajectories with a fixed step (see the contract in `tausid.engine`)."""
    if engine_taken(field, integrator, engine) == "fused":
        assert isinstance(field, VectorField)
        return rollout_fused(field, x0, u, dt, integrator, threads=engine.threads)
    return rollout_scan(field, x0, u, dt, integrator)


def evaluate(network: Network, z: Float[Array, "*batch n_in"], engine: Engine = AUTO) -> Float[Array, "*batch n_out"]:
    """The value of a network at many points, such as the outputs along a rollout."""
    if _takes_fused(engine, fused_missing() or why_not_network(network)):
        return evaluate_fused(network, z, threads=engine.threads)
    return network(z)


def engine_taken(field: Callable[[Array, Array], Array], integrator: FixedStep, engine: Engine = AUTO) -> str:
    """Which implementation computes a rollout of this model here."""
    return "fused" if _takes_fused(engine, fused_missing() or why_not_fused(field, integrator)) else "scan"


def describe_engine(field: Callable[[Array, Array], Array], integrator: FixedStep) -> str:
    """Which engine `auto` takes for a model on this machine, and why, in one sentence."""
    reason = fused_missing() or why_not_fused(field, integrator)
    if reason is not None:
        return f"scan, because fused is not available: {reason}"
    return "fused, which supports this model here"


def _takes_fused(engine: Engine, reason: str | None) -> bool:
    if engine.name == "fused":
        refuse_fused(reason)
    return engine.name != "scan" and reason is None
