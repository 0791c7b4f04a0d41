"""What was measured, in physical units: one record of inputs, outputs and time, and sets of them."""

from tausid.records._record import (
    LARGEST,
    UNIFORM_TOLERANCE,
    Dataset,
    Record,
    Records,
    as_columns,
    as_floats,
    as_records,
    check_same_channels,
    make_clock,
    numbered,
)

__all__ = [
    "LARGEST",
    "UNIFORM_TOLERANCE",
    "Dataset",
    "Record",
    "Records",
    "as_columns",
    "as_floats",
    "as_records",
    "check_same_channels",
    "make_clock",
    "numbered",
]
