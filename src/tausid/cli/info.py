"""`tausid info`: what is said of a model, in short or in full."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tausid.cli.printing import describe_members, describe_physics, describe_preparation, describe_tau
from tausid.errors import StorageError
from tausid.model.arrays import named_arrays
from tausid.model.ensembles import AnyModel, EnsembleModel
from tausid.model.file_schema import DROPPED
from tausid.model.model import describe_delays
from tausid.model.structure import as_plain
from tausid.results.runs import RunFolder
from tausid.results.summary import describe_model


def describe_in_short(model: AnyModel, path: Path) -> dict[str, Any]:
    """What a person wants to know first: channels, size, clock, how it was made, and how good it is."""
    origin, space = model.provenance, model.state_space
    kinds = ("f.", "g.", "initial.") if model.structure.initial_state == "encoder" else ("f.", "g.")
    weights = sum(array.size for name, array in named_arrays(space).items() if name.startswith(kinds))
    members = {"ensemble": f"{len(model.members)} models; the best:"} if isinstance(model, EnsembleModel) else {}
    trust = (origin.get("trust") or {}).get("distance")
    found = {
        "model": path,
        "inputs": _channels(model.input_names, model.input_units),
        "outputs": _channels(model.output_names, model.output_units),
        **members,
        "states": space.nx,
        "network": f"{(model.best if isinstance(model, EnsembleModel) else model).network}; {weights} weights",
        "sampling time": f"{model.ts:g} s",
        "delays": describe_delays(model.delays, model.input_names) if any(model.delays) else "",
        "tau": describe_tau(model),
        "integration": f"{model.integration.stepper}, {model.integrator.substeps} step(s) per sample",
        "initial state": "encoder" if model.structure.initial_state == "encoder" else "from the first samples",
        "trained on": ", ".join(origin.get("train", ())) or "unknown",
        "recipe": _recipe(origin),
        "status": origin.get("status") or "unknown",
        "agreement": "" if trust is None else f"independent models agree within {100 * trust:.2g} % of the deviation",
        **_scores(path),
        "preparation": describe_preparation(model),
        "provenance": f"dropped: {origin[DROPPED]}" if DROPPED in origin else "",
        **describe_physics(model),
    }
    return {name: value for name, value in found.items() if value not in ("", "none")}


def _recipe(origin: Mapping[str, Any]) -> str:
    seed = origin.get("seed")
    return f"{(origin.get('recipe') or {}).get('name', 'unknown')}, seed {'unknown' if seed is None else seed}"


def _channels(names: tuple[str, ...], units: tuple[str, ...]) -> str:
    pairs = zip(names, units, strict=True)
    return ", ".join(f"{name} ({unit})" if unit else name for name, unit in pairs) or "none"


def _scores(path: Path) -> dict[str, str]:
    """RMSE over the first training and test record, where the model lies in the folder of a run."""
    try:
        summary = RunFolder(path if path.is_dir() else path.parent).read_summary()
    except StorageError:
        return {}
    if path.is_file() and RunFolder(path.parent).model_file != path:
        return {}
    scores = {"training error": summary, "test error": summary.get("test")}
    return {name: _errors(score) for name, score in scores.items() if score and score.get("rmse")}


def _errors(score: dict[str, Any]) -> str:
    fits = score.get("fit_percent", {})
    errors = {name: error for name, error in score["rmse"].items() if error is not None}
    told = [f"{name} {error:.4g}{_fit(fits.get(name))}" for name, error in errors.items()]
    return ", ".join(told) or "diverged"


def _fit(percent: float | None) -> str:
    return "" if percent is None else f" (fit {percent:.1f} %)"


def describe_json(model: AnyModel, path: Path) -> dict[str, Any]:
    """All of it as plain JSON values."""
    return {
        **describe_model(model, path),
        "nx": model.state_space.nx,
        "inputs": dict(zip(model.input_names, model.input_units, strict=True)),
        "outputs": dict(zip(model.output_names, model.output_units, strict=True)),
        "ts": model.ts,
        "delays": list(model.delays),
        "structure": as_plain(model.structure),
        "integration": as_plain(model.integration),
        "provenance": dict(model.provenance),
    }


def describe_all(model: AnyModel, path: Path) -> dict[str, Any]:
    """All of it but for curves, one setting a line."""
    content = describe_json(model, path)
    origin = {key: value for key, value in content.pop("provenance").items() if key not in ("folds", "recipe")}
    flat = {**content, "tau": describe_tau(model), **content.pop("structure"), **content.pop("integration"), **origin}
    folds = model.provenance.get("folds")
    if folds is not None:
        flat["chosen by folds"] = folds["chosen"]
    kept = {name: value for name, value in flat.items() if name not in ("physics", "members")}
    also = {**describe_physics(model), **describe_members(model), "preparation": describe_preparation(model)}
    return {**kept, **also}


def describe_engines(model: AnyModel | None) -> dict[str, str]:
    """Which engines there are here, and which one `auto` takes, in words."""
    from tausid.engine.choice import Engine
    from tausid.engine.engines import describe_engine
    from tausid.engine.fused import fused_missing
    from tausid.engine.library import instruction_sets
    from tausid.engine.library import missing as library_missing
    from tausid.model.free_run import why_not_compiled

    missing, reason = fused_missing(), library_missing()
    taken = "scan" if missing else "fused, for residual networks of one to four hidden layers and a fixed step"
    if model is not None:
        taken = describe_engine(model.state_space.field, model.integrator)
        reason = why_not_compiled(model.state_space, Engine(model.integration.engine))
    return {
        "simulation": "C++, in double precision" if reason is None else f"JAX, because {reason}",
        "auto": taken,
        "fused": f"not available: {missing}" if missing else f"available ({', '.join(instruction_sets())})",
        "scan": "available, for every model on every device",
    }
