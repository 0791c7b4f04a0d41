"""How a trajectory is integrated: a fixed explicit step, or an adaptive solver to check it with."""

from __future__ import annotations

from dataclasses import dataclass

from tausid.engine.holds import hold_slopes
from tausid.engine.steppers import get_stepper
from tausid.errors import ConfigError


@dataclass(frozen=True)
class FixedStep:
    """An explicit Runge-Kutta method that takes equal substeps within each sampling interval.

    Args:
        stepper: `euler`, `midpoint`, `heun` or `rk4`.
        substeps: how many steps per sampling interval.
        hold: what the inputs do between samples, `zero` or `first`, for all or one per input. None is the
            model's own in `Model.simulate`, and `zero` where there is no model.

    Raises:
        ConfigError: an unknown stepper or hold, or fewer than one substep.
    """

    stepper: str = "rk4"
    substeps: int = 1
    hold: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        get_stepper(self.stepper)
        hold_slopes(self.hold, len(self.hold) if isinstance(self.hold, tuple) else 1)
        if self.substeps < 1:
            raise ConfigError(f"`substeps` must be at least 1; got {self.substeps}. Use 1 unless Ts/tau is large.")


@dataclass(frozen=True)
class Adaptive:
    """An adaptive solver (diffrax's Tsit5 with error control), to check a discretization with.

    Args:
        rtol: relative tolerance of the local error.
        atol: absolute tolerance of the local error, in normalized states.
        hold: as for `FixedStep`.
        max_steps: most steps within one sampling interval; beyond it the states are NaN.

    Raises:
        ConfigError: a tolerance is not positive, or an unknown hold.
    """

    rtol: float = 1e-6
    atol: float = 1e-6
    hold: str | tuple[str, ...] | None = None
    max_steps: int = 4096

    def __post_init__(self) -> None:
        hold_slopes(self.hold, len(self.hold) if isinstance(self.hold, tuple) else 1)
        for name in ("rtol", "atol"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"`{name}` must be positive; got {getattr(self, name)}. Try 1e-6.")


Integrator = FixedStep | Adaptive
