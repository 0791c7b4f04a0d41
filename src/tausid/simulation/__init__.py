"""The identified model in physical units: simulate a record, save, load."""

from tausid.simulation._arrays import SCALING_FIELDS, fill_arrays, named_arrays
from tausid.simulation._course import WHOLE_STEP, Simulation, longest_step, make_integrator
from tausid.simulation._model import Model
from tausid.simulation._restore import make_model, with_limits

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
