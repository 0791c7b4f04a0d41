"""A finished fit with its records and free runs: in memory (`Run`) and on disk (`RunFolder`)."""

from tausid.results.runs._folder import RunFolder
from tausid.results.runs._run import Experiment, Run

__all__ = ["Experiment", "Run", "RunFolder"]
