"""Results on standard output: a table for people, or one JSON object for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tausid.data.records import Record
    from tausid.model.ensembles import AnyModel
    from tausid.model.evaluation import Score, Scores


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object; null for what is no finite number."""
    print(json.dumps(_finite(content), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_notes(records: Sequence[Record]) -> None:
    """Say on standard error what was done to data, and which of their samples look like none."""
    from tausid.data.inspection import bad_samples

    done = [f"{record.name}: {step}" for record in records for step in record.history]
    for note in (*done, *bad_samples(records)):
        print(f"note: {note}", file=sys.stderr)


def print_scores(scores: Mapping[str, Scores], model: AnyModel) -> None:
    """Print a table of free-run scores by role, one row per record and output, and one for all records of a role."""
    rows = [
        (
            label,
            output,
            f"{score.rmse[output]:.4g} {unit}".rstrip(),
            f"{score.nrmse[output]:.4f}",
            f"{score.fit_percent[output]:.2f}",
            str(score.n_scored),
            str(score.n_skipped),
        )
        for label, score in _labelled(scores)
        for output, unit in zip(score.rmse, model.output_units, strict=True)
    ]
    print("free-run simulation")
    print_columns(("record", "output", "RMSE", "NRMSE", "fit %", "scored", "skipped"), rows)


def _labelled(scores: Mapping[str, Scores]) -> Iterator[tuple[str, Score]]:
    for role, several in scores.items():
        for score in several.records:
            yield score.record if role in ("", score.record) else f"{role}: {score.record}", score
        if len(several.records) > 1:
            yield f"{role}: all".removeprefix(": "), several.pooled


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        print(f"{name:<{width}}  {value}")


def print_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print plain columns, the first one to the left and the others to the right; empty ones are left out."""
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    widths = [max(len(header[i]), *(len(row[i]) for row in rows)) for i in kept]
    for row in (header, *rows):
        first, *others = (
            row[i].ljust(width) if i == kept[0] else row[i].rjust(width) for i, width in zip(kept, widths, strict=True)
        )
        print("  ".join([first, *others]).rstrip())


def describe_tau(model: AnyModel) -> str:
    """Tau in words, with the normalized sampling time and where it came from."""
    tau = model.tau
    seconds = f"{tau:.4g} s" if isinstance(tau, float) else ", ".join(f"{t:.4g}" for t in tau) + " s"
    kind = "trained from a start value" if model.state_space.tau.trainable else "fixed"
    return f"{seconds} (Ts/tau = {model.ts_over_tau:.4g}; {model.state_space.tau.source}, {kind})"


def describe_preparation(model: AnyModel) -> str:
    """What was done to the training data before the fit, one line per step."""
    steps = [f"{name}: {step}" for name, history in model.provenance.get("preparation", {}).items() for step in history]
    return "\n  ".join(steps) or "none"


def describe_physics(model: AnyModel) -> dict[str, str]:
    """The fitted parameters of known equations in words; nothing for a model without them."""
    if model.physics is None:
        return {}
    values = [f"{name} = {parameter}" for name, parameter in model.physics.parameters.items()]
    corrected = "" if model.structure.correction == "none" else ", corrected by a network"
    return {"physics": "\n  ".join([type(model.physics.plant).__name__ + corrected, *values])}


def describe_members(model: AnyModel) -> dict[str, str]:
    """The members of an ensemble in words; nothing for a single model."""
    members = model.provenance.get("members", [])
    lines = [
        f"seed {m['seed']}: held-out error {'unknown' if m['error'] is None else format(m['error'], '.4g')}, "
        f"{m['status']}, {'kept' if m['kept'] else 'left out'}"
        for m in members
    ]
    return {"members": "\n  ".join(["errors as a share of the output's standard deviation", *lines])} if lines else {}
