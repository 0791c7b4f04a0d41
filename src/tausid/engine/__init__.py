"""The only time loop: from initial states, inputs and time steps to state trajectories.

The contract of every implementation, tested on one grid (`tests/test_rollout.py`):

    x = rollout(field, x0, u, dt, integrator, engine)

with `x0 (B, nx)`, `u (J, B, nu)`, `dt (J-1, B)` in seconds and `x (J, B, nx)`, time first. `x[0]` is `x0`;
step j goes from sample j to j + 1 and lasts `dt[j]`. Differentiable with respect to the field's weights,
`x0`, `u` and `dt`. NaN in, NaN out: a rollout never raises on values. `rollout` and `evaluate` choose among
the implementations.
"""
