"""The only time loop: from initial states, inputs and time steps to state trajectories.

The contract of every implementation, tested on one grid (`tests/test_rollout.py`):

    x = rollout(field, x0, u, dt, integrator)

with `x0 (B, nx)`, `u (J, B, nu)`, `dt (J-1, B)` in seconds and `x (J, B, nx)`, time first. `x[0]` is `x0`; step j
goes from sample j to j + 1 and lasts `dt[j]`. Differentiable with respect to the field's weights, `x0`, `u`, `dt`.
NaN in, NaN out: a rollout never raises on values.
"""

from tausid.rollout.field import VectorField
from tausid.rollout.integrators import Adaptive, FixedStep, Integrator
from tausid.rollout.scan import rollout_scan

__all__ = ["Adaptive", "FixedStep", "Integrator", "VectorField", "rollout_scan"]
