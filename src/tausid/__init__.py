"""tausid: continuous-time nonlinear system identification with state derivative normalization."""
from tausid.records import Dataset, Record
from tausid.scaling import Scaling
