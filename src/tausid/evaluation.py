"""How well a model simulates, in physical units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tausid.display import html_table
from tausid.errors import DataError
from tausid.records import Record
from tausid.simulation import Model, Simulation


@dataclass(frozen=True)
class Score:
    """Free-run errors, by output name.

    Args:
        rmse: root mean squared error, in the output's unit.
        nrmse: the same divided by the standard deviation of the measured output over the scored samples.
        fit_percent: `100 (1 - nrmse)`: 100 is perfect, 0 is no better than the mean.
        n_skipped: leading samples that are not scored.
        n_scored: samples with a measured output that are.
        status: `ok`, or `diverged`; the errors are then infinite.
        record: name of the record.
    """

    rmse: Mapping[str, float]
    nrmse: Mapping[str, float]
    fit_percent: Mapping[str, float]
    n_skipped: int
    n_scored: int
    status: str
    record: str

    @property
    def total_rmse(self) -> float:
        """The paper's `e_RMSE = sqrt(mean ||y - y_hat||^2)`, all outputs together."""
        return float(np.sqrt(sum(value**2 for value in self.rmse.values())))

    def _repr_html_(self) -> str:
        rows = [(name, self.rmse[name], self.nrmse[name], self.fit_percent[name]) for name in self.rmse]
        left_out = f"{self.n_scored} samples, {self.n_skipped} skipped"
        title = f"Free run over {self.record}: {left_out}" + ("" if self.status == "ok" else f", {self.status}")
        return html_table(title, rows, header=("output", "RMSE", "NRMSE", "fit %"))

    def as_dict(self) -> dict[str, Any]:
        """The score as plain JSON values; infinite errors are null."""
        errors = {
            key: {name: value if np.isfinite(value) else None for name, value in getattr(self, key).items()}
            for key in ("rmse", "nrmse", "fit_percent")
        }
        return {
            **errors,
            "n_skipped": self.n_skipped,
            "n_scored": self.n_scored,
            "simulation": self.status,
            "record": self.record,
        }


def evaluate(model: Model, record: Record, *, skip: int | None = None) -> Score:
    """Simulate a record freely and score it against what was measured.

    `rmse = sqrt(1 / (N - n) sum_{k=n}^{N-1} (y_k - y_hat_k)^2)`, with `n` the samples that the initial state was found
    from, max(na, nb) for an encoder, or `skip` where that is more. Missing outputs are left out.

    Args:
        model: the model.
        record: the measured record.
        skip: leading samples not to score, such as 50 for the official score of the cascaded tanks.

    Returns:
        The score, per output.

    Raises:
        DataError: no sample is left to score, or the record does not fit the model.
    """
    simulation = model.simulate(record, throw=False)
    return score_simulation(simulation, record, skip=skip)


def score_simulation(simulation: Simulation, record: Record, *, skip: int | None = None) -> Score:
    """Score a simulation on the record's own time stamps.

    Args:
        simulation: from `Model.simulate` without `dt`.
        record: the measured record.
        skip: leading samples not to score; at least those of the initial state.

    Returns:
        The score, per output.

    Raises:
        DataError: another length than the record's, or no sample is left to score.
    """
    if len(simulation.y) != len(record):
        raise DataError(
            f"a simulation must have the record's {len(record)} samples to be scored; got {len(simulation.y)}. "
            "Simulate without `dt`."
        )
    n = max(simulation.n_skipped, skip or 0)
    check_skip(record, n)
    rmse = _rmse(record.y[n:], simulation.y[n:])
    nrmse = rmse / np.maximum(np.nanstd(record.y[n:], axis=0), np.finfo(float).tiny)
    names = record.output_names
    return Score(
        rmse=_by_name(names, rmse),
        nrmse=_by_name(names, nrmse),
        fit_percent=_by_name(names, 100.0 * (1.0 - nrmse)),
        n_skipped=n,
        n_scored=int(np.isfinite(record.y[n:]).any(axis=1).sum()),
        status=simulation.status,
        record=record.name,
    )


def check_skip(record: Record, skip: int) -> None:
    """Check that samples are left to score.

    Args:
        record: the measured record.
        skip: leading samples not to score.

    Raises:
        DataError: none is left.
    """
    if not np.isfinite(record.y[skip:]).any(axis=0).all():
        raise DataError(
            f"record {record.name!r} must have measured outputs after the {skip} skipped samples; it has none. "
            "Give a longer record, or skip less."
        )


def _rmse(y: Float[np.ndarray, "N ny"], y_hat: Float[np.ndarray, "N ny"]) -> Float[np.ndarray, "ny"]:
    errors = np.where(np.isfinite(y_hat), y - y_hat, np.inf)
    return np.sqrt(np.nanmean(np.where(np.isnan(y), np.nan, errors) ** 2, axis=0))


def _by_name(names: tuple[str, ...], values: np.ndarray) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}
