"""python-control: a model as a nonlinear system, and its linearization with exact Jacobians."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tausid.errors import ConfigError, MissingExtraError
from tausid.export.description import Description, describe
from tausid.export.interpreter import evaluate, jacobian
from tausid.export.names import identifiers
from tausid.model.ensembles import AnyModel
from tausid.shapes import ArrayLike

if TYPE_CHECKING:
    import control


def to_control(model: AnyModel | Description, *, name: str = "model") -> control.NonlinearIOSystem:
    """A nonlinear input/output system of python-control in continuous time.

    Args:
        model: the model, an ensemble, or the description of one.
        name: what the system is called.

    Returns:
        The system, which takes inputs as they act, after their delays. Its signals have the channels' names as
        identifiers, its states are x1, x2, ...

    Raises:
        MissingExtraError: python-control is not installed.
    """
    description = describe(model)
    return _library().nlsys(
        lambda t, x, u, params: evaluate(description.f, x, u[: description.nu]),
        lambda t, x, u, params: evaluate(description.g, x, u[: description.nu]),
        name=name,
        **_signals(description),
    )


def to_state_space(model: AnyModel | Description, x: ArrayLike, u: ArrayLike) -> control.StateSpace:
    """The linearization at a state and an input as a `StateSpace` of python-control.

    Args:
        model: the model, an ensemble, or the description of one.
        x: the state, normalized.
        u: the inputs, in physical units.

    Returns:
        The system of deviations from this point, in physical units of inputs and outputs, without delays.

    Raises:
        ConfigError: the model has no inputs.
        MissingExtraError: python-control is not installed.
    """
    description = describe(model)
    if not description.nu:
        raise ConfigError(
            "a model must have inputs to be a `StateSpace` of python-control; this one has none. "
            "Take A and C from `tausid.export.interpreter.jacobian`."
        )
    point = np.asarray(x, float), np.asarray(u, float)
    return _library().ss(*jacobian(description.f, *point), *jacobian(description.g, *point), **_signals(description))


def _signals(d: Description) -> dict[str, Any]:
    states = [f"x{i + 1}" for i in range(d.nx)]
    safe = list(identifiers((*d.input_names, *d.output_names), taken=states))
    return {"inputs": safe[: d.nu], "outputs": safe[d.nu :], "states": states}


def _library() -> Any:
    try:
        import control
    except ImportError:
        raise MissingExtraError(
            "systems of python-control need control, which is not installed. "
            'Install it with pip install "tausid[control]".'
        ) from None
    return control
