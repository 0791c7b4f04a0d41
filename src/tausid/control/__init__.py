"""Models at work: operating points, linearizations, responses, comparisons, observers and a simulator.

All of it computes with the description of a model (`tausid.export.describe`), whose Jacobians are exact. Inputs and
outputs are in physical units, states are those of the model.
"""

from tausid.control.comparison import Comparison as Comparison
from tausid.control.comparison import compare as compare
from tausid.control.linearization import Linearization as Linearization
from tausid.control.linearization import LinearizationTable as LinearizationTable
from tausid.control.linearization import frequency_response as frequency_response
from tausid.control.linearization import linearize as linearize
from tausid.control.linearization import linearize_over as linearize_over
from tausid.control.linearization import step_response as step_response
from tausid.control.noise import estimate_noise as estimate_noise
from tausid.control.observer import Estimate as Estimate
from tausid.control.observer import Noise as Noise
from tausid.control.observer import Observer as Observer
from tausid.control.observer import predict_ahead as predict_ahead
from tausid.control.points import OperatingPoint as OperatingPoint
from tausid.control.points import operating_point as operating_point
from tausid.control.simulator import Simulator as Simulator
from tausid.control.smoother import Smoothed as Smoothed
from tausid.control.smoother import smooth as smooth
