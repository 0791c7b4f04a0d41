"""The state-space model in normalized units: f, g, the initial state, tau, and how they fit together."""

from tausid.models._build import build_state_space, make_network, nonlinear_part, readout_of, start_at_zero
from tausid.models._initial import SEEN_STATES, AbstractInitialState, Encoder, FreeState
from tausid.models._state_space import (
    SLOWEST,
    CorrectedField,
    StateSpace,
    clip_straight,
    free_parameters,
    negative_definite,
)

__all__ = [
    "SEEN_STATES",
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
