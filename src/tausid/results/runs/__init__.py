"""The folder of a run: what `tausid fit` leaves there, and how it is read again.

The folder holds its own copy of the records and of the model's free runs over them, so that a report can be made
years later, on another machine, and shows what was scored and not what lies under the same path by then.
"""

from tausid.results.runs._experiments import RECORDS, write_experiments
from tausid.results.runs._folder import (
    REPORT,
    RESULT,
    best_step,
    describe_model,
    describe_parameters,
    file_sums,
    read_run,
    score_dict,
    write_run,
)
from tausid.results.runs._history import HISTORY, history_csv, read_history, write_history
from tausid.results.runs._run import MODEL, Experiment, Run, simulate_all

__all__ = [
    "HISTORY",
    "MODEL",
    "RECORDS",
    "REPORT",
    "RESULT",
    "Experiment",
    "Run",
    "best_step",
    "describe_model",
    "describe_parameters",
    "file_sums",
    "history_csv",
    "read_history",
    "read_run",
    "score_dict",
    "simulate_all",
    "write_experiments",
    "write_history",
    "write_run",
]
