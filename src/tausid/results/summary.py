"""Scores and models as plain JSON values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tausid.model.ensembles import AnyModel, EnsembleModel
from tausid.model.evaluation import Scores


def score_dict(scores: Scores) -> dict[str, Any]:
    """Scores of the first record; with several, of each by name and of all together, too."""
    first = scores.records[0].as_dict()
    if len(scores.records) == 1:
        return first
    by_name = {score.record: score.as_dict() for score in scores.records}
    return {**first, "records": by_name, "pooled": scores.pooled.as_dict()}


def describe_model(model: AnyModel, path: Path) -> dict[str, Any]:
    """What is said of a model in every JSON object."""
    return {
        "tau": model.tau,
        "ts_over_tau": model.ts_over_tau,
        "seed": model.provenance.get("seed"),
        "model": str(path),
        **({"physics": _describe_parameters(model)} if model.physics is not None else {}),
        **({"members": model.provenance.get("members", [])} if isinstance(model, EnsembleModel) else {}),
    }


def _describe_parameters(model: AnyModel) -> dict[str, dict[str, Any]]:
    """Value, unit and standard deviation (null where it is not known) of the fitted parameters by name."""
    found = {} if model.physics is None else model.physics.parameters
    return {
        name: {
            "value": parameter.value,
            "unit": parameter.unit,
            "deviation": parameter.deviation if np.isfinite(parameter.deviation or np.nan) else None,
        }
        for name, parameter in found.items()
    }
