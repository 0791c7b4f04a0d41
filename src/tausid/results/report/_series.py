"""Time series inside a page: few bytes, and no peak lost."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tausid.results.runs import Experiment
from tausid.shapes import Float

# Values that all time plots of a page may hold together: single precision in base64 makes this 3.2 MB.
VALUES = 600_000


def thin(values: Float[np.ndarray, "N"], width: int) -> Float[np.ndarray, "M"]:
    """The smallest and the largest of every `width` samples, in the order in which they occur.

    Example:
        >>> thin(np.array([0.0, 9.0, 1.0, -5.0, 2.0, 2.0]), 3).tolist()
        [0.0, 9.0, -5.0, 2.0]
    """
    missing = -len(values) % width
    buckets = np.concatenate([values, np.full(missing, np.nan)]).reshape(-1, width)
    first = np.argmin(np.where(np.isnan(buckets), np.inf, buckets), axis=1)
    second = np.argmax(np.where(np.isnan(buckets), -np.inf, buckets), axis=1)
    rows = np.arange(len(buckets))
    picked = np.stack([buckets[rows, np.minimum(first, second)], buckets[rows, np.maximum(first, second)]], axis=1)
    return picked.ravel()


def plot_data(experiment: Experiment, budget: int) -> dict[str, Any]:
    """What the page's script draws of a record and its free run."""
    record, run = experiment.record, experiment.simulation
    stamps = 0 if record.is_uniform else 2  # double precision: as much as two series
    width = bucket_width(len(record), budget // (3 * record.ny + record.nu + stamps))
    panels = []
    for channel, name in enumerate(record.output_names):
        y, modelled = record.y[:, channel], run.y[:, channel]
        lines = [_series("measured", "measured", y, width), _series("simulated", "simulated", modelled, width)]
        panels.append({"label": name, "unit": record.output_units[channel], "kind": "output", "series": lines})
        rest = [_series("residual", "residual", y - modelled, width)]
        panels.append({"label": "residual", "unit": record.output_units[channel], "kind": "residual", "series": rest})
    for channel, name in enumerate(record.input_names):
        line = [_series(name, "input", record.u[:, channel], width)]
        panels.append({"label": name, "unit": record.input_units[channel], "kind": "input", "series": line})
    return {"clock": _clock(experiment, width), "panels": panels, "thinned": width}


def bucket_width(samples: int, allowed: int) -> int:
    """How many samples become two, so that no more than the allowed number is left; 1 where all can stay."""
    return 1 if samples <= allowed else -(-2 * samples // max(allowed, 2))


def _series(name: str, kind: str, values: np.ndarray, width: int) -> dict[str, Any]:
    """Numbers as differences from a typical one: single precision then keeps small changes of large values."""
    finite = values[np.isfinite(values)]
    offset = float(np.median(finite)) if len(finite) else 0.0
    kept = values if width == 1 else thin(values, width)
    with np.errstate(over="ignore", invalid="ignore"):  # what diverged is not drawn
        small = np.asarray(kept - offset, "<f4")
    return {"name": name, "kind": kind, "offset": offset, "values": _base64(small)}


def _clock(experiment: Experiment, width: int) -> dict[str, Any]:
    record = experiment.record
    if record.is_uniform:
        step = record.ts if width == 1 else record.ts * width / 2
        count = len(record) if width == 1 else 2 * -(-len(record) // width)
        return {"start": float(record.t[0]), "step": step, "count": count, "end": float(record.t[-1])}
    times = record.t if width == 1 else _bucket_times(record.t, width)
    return {"stamps": _base64(np.asarray(times, "<f8")), "count": len(times), "end": float(record.t[-1])}


def _bucket_times(t: np.ndarray, width: int) -> np.ndarray:
    """Each bucket's first time stamp and the one in its middle."""
    first = np.arange(0, len(t), width)
    middle = np.minimum(first + width // 2, len(t) - 1)
    return np.stack([t[first], t[middle]], axis=1).ravel()


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()
