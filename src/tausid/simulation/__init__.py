"""The identified model in physical units: simulate a record, save, load."""

from tausid.simulation._model import (
    SCALING_FIELDS,
    WHOLE_STEP,
    Model,
    Simulation,
    fill_arrays,
    longest_step,
    make_integrator,
    make_model,
    named_arrays,
    with_limits,
)

__all__ = [
    "SCALING_FIELDS",
    "WHOLE_STEP",
    "Model",
    "Simulation",
    "fill_arrays",
    "longest_step",
    "make_integrator",
    "make_model",
    "named_arrays",
    "with_limits",
]
