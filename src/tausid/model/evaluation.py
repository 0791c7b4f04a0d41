"""How well a model simulates, in physical units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tausid.data.records import Record, Records, as_records
from tausid.display import html_table
from tausid.errors import ConfigError, DataError
from tausid.model.course import Simulation
from tausid.model.ensembles import AnyModel
from tausid.model.model import InitialValue
from tausid.shapes import Float

if TYPE_CHECKING:
    from tausid.linear import LinearModel


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
        record: name of the record, or of what was pooled.
        n_initial: leading samples that the initial state was found from.
        initial_state: how it was found: `encoder`, `refine`, `free` or `given`.
    """

    rmse: Mapping[str, float]
    nrmse: Mapping[str, float]
    fit_percent: Mapping[str, float]
    n_skipped: int
    n_scored: int
    status: str
    record: str
    n_initial: int = 0
    initial_state: str = "encoder"

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
            "n_initial": self.n_initial,
            "initial_state": self.initial_state,
        }


@dataclass(frozen=True)
class Scores:
    """Scores of several records, one by one and pooled.

    Args:
        records: one score per record, in their order.
        pooled: the errors over the scored samples of all records together.
    """

    records: tuple[Score, ...]
    pooled: Score


def evaluate(
    model: AnyModel | LinearModel, record: Record, *, skip: int | None = None, x0: InitialValue = None
) -> Score:
    """Simulate a record freely and score it against what was measured.

    `rmse = sqrt(1 / (N - n) sum_{k=n}^{N-1} (y_k - y_hat_k)^2)`, with `n` the samples that the initial state was found
    from, max(na, nb) for an encoder, 50 for a linear model, or `skip` where that is more. Missing outputs are left
    out.

    Args:
        model: the model, or the linear one of `estimate_bla`.
        record: the measured record.
        skip: leading samples not to score, such as 50 for the official score of the cascaded tanks.
        x0: where the simulation begins, as for `Model.simulate`.

    Returns:
        The score, per output.

    Raises:
        DataError: no sample is left to score, or the record does not fit the model.
    """
    return score_simulation(run_freely(model, as_records(record)[0], x0), record, skip=skip)


def evaluate_records(
    model: AnyModel | LinearModel, records: Records, *, skip: int | None = None, x0: str | None = None
) -> Scores:
    """Simulate several records freely, and score each of them and all together.

    Args:
        model: the model.
        records: the measured records, one or several.
        skip: leading samples of each record not to score.
        x0: where the simulations begin, as for `Model.simulate`.

    Returns:
        The scores.

    Raises:
        DataError: a record has no sample left to score, or does not fit the model.
    """
    several = as_records(records)
    return score_simulations([run_freely(model, record, x0) for record in several], several, skip=skip)


def run_freely(model: AnyModel | LinearModel, record: Record, x0: InitialValue) -> Simulation:
    """A free run of any model, which may diverge."""
    if isinstance(model, AnyModel):
        return model.simulate(record, x0=x0, throw=False)
    from tausid.linear import X0_SAMPLES  # late: it needs scipy

    if x0 is not None and (isinstance(x0, str | Mapping | Record)):
        raise ConfigError(f"`x0` of a linear model must be a state or None; got {x0!r}. Leave it out.")
    states, _ = model.simulate_states(record, None if x0 is None else np.asarray(x0, float))
    y = model.simulate(record, states[0])
    used = 0 if x0 is not None else min(X0_SAMPLES, len(record))
    how = "refine" if x0 is None else "given"
    return Simulation(record.t, y, states, used, "ok", record.output_names, how)


def score_simulations(
    simulations: Sequence[Simulation], several: Sequence[Record], *, skip: int | None = None
) -> Scores:
    """Score simulations of several records, each of them and all together."""
    pairs = list(zip(several, simulations, strict=True))
    scores = tuple(score_simulation(simulation, record, skip=skip) for record, simulation in pairs)
    skipped = [score.n_skipped for score in scores]
    y = np.concatenate([record.y[n:] for record, n in zip(several, skipped, strict=True)])
    y_hat = np.concatenate([simulation.y[n:] for simulation, n in zip(simulations, skipped, strict=True)])
    pooled = _score(
        several[0].output_names,
        y,
        y_hat,
        n_skipped=sum(skipped),
        status="ok" if all(score.status == "ok" for score in scores) else "diverged",
        record=f"{len(several)} records",
        n_initial=sum(score.n_initial for score in scores),
        initial_state=scores[0].initial_state,
    )
    return Scores(scores, pooled)


def score_simulation(simulation: Simulation, record: Record, *, skip: int | None = None) -> Score:
    """Score a simulation on the record's own time stamps."""
    if len(simulation.y) != len(record):
        raise DataError(
            f"a simulation must have the record's {len(record)} samples to be scored; got {len(simulation.y)}. "
            "Simulate without `dt`."
        )
    n = max(simulation.n_skipped, skip or 0)
    check_skip(record, n)
    return _score(
        record.output_names,
        record.y[n:],
        simulation.y[n:],
        n_skipped=n,
        status=simulation.status,
        record=record.name,
        n_initial=simulation.n_skipped,
        initial_state=simulation.initial_state,
    )


def free_run_errors(simulation: Simulation, record: Record) -> tuple[Float[np.ndarray, "ny"], int]:
    """Root mean squared error of each output of a record's simulation, and the number of samples that are scored."""
    check_skip(record, simulation.n_skipped)
    y = record.y[simulation.n_skipped :]
    return _rmse(y, simulation.y[simulation.n_skipped :]), _scored(y)


def _score(
    names: tuple[str, ...], y: Float[np.ndarray, "N ny"], y_hat: Float[np.ndarray, "N ny"], **about: Any
) -> Score:
    """The errors over samples that are all scored."""
    rmse = _rmse(y, y_hat)
    with np.errstate(over="ignore"):  # an output that stands still
        nrmse = rmse / np.maximum(np.nanstd(y, axis=0), np.finfo(float).tiny)
        fit_percent = 100.0 * (1.0 - nrmse)
    return Score(
        rmse=_by_name(names, rmse),
        nrmse=_by_name(names, nrmse),
        fit_percent=_by_name(names, fit_percent),
        n_scored=_scored(y),
        **about,
    )


def check_skip(record: Record, skip: int) -> None:
    """Check that samples are left to score."""
    if not np.isfinite(record.y[skip:]).any(axis=0).all():
        raise DataError(
            f"record {record.name!r} must have measured outputs after the {skip} skipped samples; it has none. "
            "Give a longer record, or skip less."
        )


def _rmse(y: Float[np.ndarray, "N ny"], y_hat: Float[np.ndarray, "N ny"]) -> Float[np.ndarray, "ny"]:
    errors = np.where(np.isfinite(y_hat), y - y_hat, np.inf)
    return np.sqrt(np.nanmean(np.where(np.isnan(y), np.nan, errors) ** 2, axis=0))


def _scored(y: Float[np.ndarray, "N ny"]) -> int:
    return int(np.isfinite(y).any(axis=1).sum())


def _by_name(names: tuple[str, ...], values: np.ndarray) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}
