"""tausid: continuous-time nonlinear system identification with state derivative normalization.

This file is the whole public API. Names are imported when they are first used, so that `import tausid`
takes no time and needs no compiler of JAX's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tausid import control as control
    from tausid import errors as errors
    from tausid import export as export
    from tausid import study as study
    from tausid.control.comparison import compare as compare
    from tausid.data import datasets as datasets
    from tausid.data import preparation as preparation
    from tausid.data.clocks import split_at_gaps as split_at_gaps
    from tausid.data.inspection import Inspection as Inspection
    from tausid.data.inspection import look as look
    from tausid.data.readers import read as read
    from tausid.data.readers import read_channels as read_channels
    from tausid.data.readers import read_csv as read_csv
    from tausid.data.records import Dataset as Dataset
    from tausid.data.records import Record as Record
    from tausid.data.scaling import Scaling as Scaling
    from tausid.data.steps import prepare as prepare
    from tausid.engine.integrators import Adaptive as Adaptive
    from tausid.engine.integrators import FixedStep as FixedStep
    from tausid.errors import ConfigError as ConfigError
    from tausid.errors import DataError as DataError
    from tausid.errors import DivergenceError as DivergenceError
    from tausid.errors import ExecutorError as ExecutorError
    from tausid.errors import StorageError as StorageError
    from tausid.errors import TausidError as TausidError
    from tausid.linear import LinearModel as LinearModel
    from tausid.linear import estimate_bla as estimate_bla
    from tausid.linear import estimate_delays as estimate_delays
    from tausid.linear import estimate_frf as estimate_frf
    from tausid.linear.order import OrderEstimate as OrderEstimate
    from tausid.linear.order import estimate_order as estimate_order
    from tausid.linear.tau_estimation import TauEstimate as TauEstimate
    from tausid.model import physics as physics
    from tausid.model.course import Simulation as Simulation
    from tausid.model.ensembles import EnsembleModel as EnsembleModel
    from tausid.model.ensembles import load_model as load_model
    from tausid.model.evaluation import Score as Score
    from tausid.model.evaluation import Scores as Scores
    from tausid.model.evaluation import evaluate as evaluate
    from tausid.model.evaluation import evaluate_records as evaluate_records
    from tausid.model.model import Model as Model
    from tausid.model.official import evaluate_official as evaluate_official
    from tausid.model.structure import Integration as Integration
    from tausid.model.structure import Structure as Structure
    from tausid.model.tau import Tau as Tau
    from tausid.results import plots as plots
    from tausid.results import report as report
    from tausid.results import residuals as residuals
    from tausid.results import runs as runs
    from tausid.results.residuals import analyse_residuals as analyse_residuals
    from tausid.study.tau_by_training import estimate_tau as estimate_tau
    from tausid.training import FitResult as FitResult
    from tausid.training import FoldCurves as FoldCurves
    from tausid.training import fit as fit
    from tausid.training import recipes as recipes
    from tausid.training.parts import Adam as Adam
    from tausid.training.parts import Barrier as Barrier
    from tausid.training.parts import Fixed as Fixed
    from tausid.training.parts import Folds as Folds
    from tausid.training.parts import FromLinear as FromLinear
    from tausid.training.parts import Given as Given
    from tausid.training.parts import LastShare as LastShare
    from tausid.training.parts import LevenbergMarquardt as LevenbergMarquardt
    from tausid.training.parts import PaperTestHalf as PaperTestHalf
    from tausid.training.parts import Random as Random
    from tausid.training.parts import RandomDynamics as RandomDynamics
    from tausid.training.parts import Search as Search
    from tausid.training.recipe import Recipe as Recipe

_MODULES = {
    "control": "control",
    "datasets": "data.datasets",
    "errors": "errors",
    "export": "export",
    "physics": "model.physics",
    "plots": "results.plots",
    "preparation": "data.preparation",
    "recipes": "training.recipes",
    "report": "results.report",
    "residuals": "results.residuals",
    "runs": "results.runs",
    "study": "study",
}
_NAMES = {
    "control.comparison": "compare",
    "data.clocks": "split_at_gaps",
    "data.inspection": "Inspection look",
    "data.steps": "prepare",
    "data.readers": "read read_channels read_csv",
    "data.records": "Dataset Record",
    "data.scaling": "Scaling",
    "engine.integrators": "Adaptive FixedStep",
    "errors": "ConfigError DataError DivergenceError ExecutorError StorageError TausidError",
    "linear": "LinearModel estimate_bla estimate_delays estimate_frf",
    "linear.order": "OrderEstimate estimate_order",
    "linear.tau_estimation": "TauEstimate",
    "model.course": "Simulation",
    "model.ensembles": "EnsembleModel load_model",
    "model.evaluation": "Score Scores evaluate evaluate_records",
    "model.model": "Model",
    "model.official": "evaluate_official",
    "model.structure": "Integration Structure",
    "model.tau": "Tau",
    "results.residuals": "analyse_residuals",
    "study.tau_by_training": "estimate_tau",
    "training": "FitResult FoldCurves fit",
    "training.parts": "Adam Barrier Fixed Folds FromLinear Given LastShare LevenbergMarquardt PaperTestHalf Random"
    " RandomDynamics Search",
    "training.recipe": "Recipe",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted((*_MODULES, *_HOMES))]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tausid.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"tausid.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tausid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
