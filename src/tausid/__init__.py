"""tausid: continuous-time nonlinear system identification with state derivative normalization.

This file is the whole public API. Names are imported when they are first used, so that `import tausid`
takes no time and needs no compiler of JAX's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tausid import datasets as datasets
    from tausid import errors as errors
    from tausid import physics as physics
    from tausid import plots as plots
    from tausid import preparation as preparation
    from tausid import report as report
    from tausid import residuals as residuals
    from tausid import runs as runs
    from tausid import study as study
    from tausid.clocks import split_at_gaps as split_at_gaps
    from tausid.config import Config as Config
    from tausid.config import recipe_config as recipe_config
    from tausid.ensembles import EnsembleModel as EnsembleModel
    from tausid.ensembles import load_model as load_model
    from tausid.errors import ConfigError as ConfigError
    from tausid.errors import DataError as DataError
    from tausid.errors import DivergenceError as DivergenceError
    from tausid.errors import ExecutorError as ExecutorError
    from tausid.errors import StorageError as StorageError
    from tausid.errors import TausidError as TausidError
    from tausid.evaluation import Score as Score
    from tausid.evaluation import Scores as Scores
    from tausid.evaluation import evaluate as evaluate
    from tausid.evaluation import evaluate_records as evaluate_records
    from tausid.inspection import Inspection as Inspection
    from tausid.inspection import look as look
    from tausid.linear import LinearModel as LinearModel
    from tausid.linear import estimate_bla as estimate_bla
    from tausid.linear import estimate_frf as estimate_frf
    from tausid.preparation import prepare as prepare
    from tausid.readers import read as read
    from tausid.readers import read_channels as read_channels
    from tausid.readers import read_csv as read_csv
    from tausid.readers import record_from_frame as record_from_frame
    from tausid.records import Dataset as Dataset
    from tausid.records import Record as Record
    from tausid.residuals import analyse_residuals as analyse_residuals
    from tausid.rollout import Adaptive as Adaptive
    from tausid.rollout import FixedStep as FixedStep
    from tausid.scaling import Scaling as Scaling
    from tausid.simulation import Model as Model
    from tausid.simulation import Simulation as Simulation
    from tausid.tau import Tau as Tau
    from tausid.tau_estimation import TauEstimate as TauEstimate
    from tausid.tau_search import estimate_tau as estimate_tau
    from tausid.training import FitResult as FitResult
    from tausid.training import FoldCurves as FoldCurves
    from tausid.training import SizeChoice as SizeChoice
    from tausid.training import choose_size as choose_size
    from tausid.training import fit as fit

_MODULES = ("datasets", "errors", "physics", "plots", "preparation", "report", "residuals", "runs", "study")
_HOMES = {
    "Adaptive": "rollout",
    "Config": "config",
    "ConfigError": "errors",
    "DataError": "errors",
    "Dataset": "records",
    "DivergenceError": "errors",
    "ExecutorError": "errors",
    "EnsembleModel": "ensembles",
    "FitResult": "training",
    "FixedStep": "rollout",
    "FoldCurves": "training",
    "Inspection": "inspection",
    "Model": "simulation",
    "Record": "records",
    "Scaling": "scaling",
    "Score": "evaluation",
    "Scores": "evaluation",
    "Simulation": "simulation",
    "SizeChoice": "training",
    "StorageError": "errors",
    "Tau": "tau",
    "TausidError": "errors",
    "LinearModel": "linear",
    "TauEstimate": "tau_estimation",
    "analyse_residuals": "residuals",
    "choose_size": "training",
    "estimate_bla": "linear",
    "estimate_frf": "linear",
    "estimate_tau": "tau_search",
    "evaluate": "evaluation",
    "evaluate_records": "evaluation",
    "fit": "training",
    "load_model": "ensembles",
    "look": "inspection",
    "prepare": "preparation",
    "read": "readers",
    "read_channels": "readers",
    "read_csv": "readers",
    "record_from_frame": "readers",
    "recipe_config": "config",
    "split_at_gaps": "clocks",
}

__all__ = ["__version__", *sorted((*_MODULES, *_HOMES))]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tausid.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"tausid.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tausid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
