"""Known equations with named, bounded parameters: alone, or with a network that corrects them.

A plant is a frozen dataclass derived from `AbstractPhysics`: fields that are a `Parameter` are fitted, all others are
constants; `derivative` and `output` are written in physical units. `fit(..., physics=CascadedTanks())` does the rest.
"""

from typing import TYPE_CHECKING, Any

from tausid.model.physics._declare import (
    AbstractPhysics,
    Parameter,
    State,
    check_physics,
    describe_physics,
    restore_physics,
)
from tausid.model.physics._known import FittedParameter, KnownPart, Units

if TYPE_CHECKING:
    from tausid.model.physics._plants import PLANTS, CascadedTanks, MassWithFriction, find_physics

__all__ = [
    "PLANTS",
    "AbstractPhysics",
    "CascadedTanks",
    "FittedParameter",
    "KnownPart",
    "MassWithFriction",
    "Parameter",
    "State",
    "Units",
    "check_physics",
    "describe_physics",
    "find_physics",
    "restore_physics",
]


def __getattr__(name: str) -> Any:
    """Plants that come with the package are read when one is asked for: few models have one."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tausid.model.physics import _plants

    return getattr(_plants, name)
