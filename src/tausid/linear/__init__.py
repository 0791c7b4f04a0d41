"""Best linear approximation: parametric (state space) and nonparametric (frequency response). No JAX here."""

from tausid.linear._convert import state_offset as state_offset
from tausid.linear._estimate import estimate_bla as estimate_bla
from tausid.linear._frf import FrequencyResponse as FrequencyResponse
from tausid.linear._frf import estimate_frf as estimate_frf
from tausid.linear._model import X0_SAMPLES as X0_SAMPLES
from tausid.linear._model import LinearModel as LinearModel
from tausid.linear.delay_estimation import estimate_delays as estimate_delays
