"""The state-space model in normalized units: f, g, the initial state, tau, and how they fit together."""

from tausid.models._state_space import (
    SLOWEST,
    AbstractInitialState,
    CorrectedField,
    Encoder,
    FreeState,
    StateSpace,
    build_state_space,
    clip_straight,
    free_parameters,
    make_network,
    negative_definite,
    nonlinear_part,
    readout_of,
    start_at_zero,
)

__all__ = [
    "SLOWEST",
    "AbstractInitialState",
    "CorrectedField",
    "Encoder",
    "FreeState",
    "StateSpace",
    "build_state_space",
    "clip_straight",
    "free_parameters",
    "make_network",
    "negative_definite",
    "nonlinear_part",
    "readout_of",
    "start_at_zero",
]
