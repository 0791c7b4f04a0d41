"""What was measured, in physical units: one record of inputs, outputs and time, and sets of them."""

from tausid.data.records._convert import as_columns, as_floats, make_clock, numbered, unnamed
from tausid.data.records._record import UNIFORM_TOLERANCE, Record, Records
from tausid.data.records._rules import LARGEST, SHORTEST_STEP, check_labels, check_unique
from tausid.data.records._sets import Dataset, as_records, check_same_channels

__all__ = [
    "LARGEST",
    "SHORTEST_STEP",
    "UNIFORM_TOLERANCE",
    "Dataset",
    "Record",
    "Records",
    "as_columns",
    "as_floats",
    "as_records",
    "check_labels",
    "check_same_channels",
    "check_unique",
    "make_clock",
    "numbered",
    "unnamed",
]
