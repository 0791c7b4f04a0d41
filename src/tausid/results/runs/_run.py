"""A finished fit with its records and free runs, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tausid.data.clocks import delay_inputs, on_one_clock
from tausid.data.records import Record, Records, as_records
from tausid.engine.holds import hold_slopes
from tausid.errors import TausidError
from tausid.model.course import Simulation
from tausid.model.ensembles import AnyModel
from tausid.model.evaluation import Score, Scores, score_simulation, score_simulations
from tausid.training import FitResult, HistoryRow
from tausid.training.recipe import Recipe

# A linear model is found from so many samples at most: more take longer than it is worth.
LINEAR_SAMPLES = 20_000


@dataclass(frozen=True, eq=False)
class Experiment:
    """A record, what it was for, and the model's free run over it.

    Args:
        role: `train` or `test`.
        record: what was measured.
        simulation: the free run, on the record's own time stamps.
        skip: leading samples not to score; None for those of the initial state only.
    """

    role: str
    record: Record
    simulation: Simulation
    skip: int | None = None

    @property
    def score(self) -> Score:
        """The score of the free run."""
        return score_simulation(self.simulation, self.record, skip=self.skip)


@dataclass(frozen=True, eq=False)
class Run:
    """A finished fit with all that a report says of it.

    Args:
        model: the best model.
        history: one row per validation.
        experiments: the records and free runs, the training record first.
        summary: how it went: `status`, `message`, `steps`, `best_step` and `seconds`.
        name: what to call the data; empty where the training record's name will do.
        command: the command that repeats it; empty where there was none.
        sources: sha256 of each data file by its name.
        linear_rmse: RMSE of the best linear approximation of the training records over the first test record (or the
            training record without one), by output; None where there is none.
        reading: how the data were read: their `name`, and the arguments of `tausid.read`; empty where not known.
    """

    model: AnyModel
    history: tuple[HistoryRow, ...]
    experiments: tuple[Experiment, ...]
    summary: Mapping[str, Any]
    name: str = ""
    command: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    linear_rmse: Mapping[str, float] | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_result(
        cls, result: FitResult, *, train: Records, tests: Records | None = None, skip: int | None = None
    ) -> Run:
        """A run from what `fit` gave back.

        Args:
            result: the fit.
            train: the training records, one or several.
            tests: records to test with.
            skip: leading samples not to score.

        Returns:
            The run, with free runs over all records.
        """
        names = ("status", "message", "steps", "best_step", "seconds")
        held_out = as_records(tests) if tests else ()
        experiments = _simulate_all(result.model, train=as_records(train), tests=held_out, skip=skip)
        summary = {name: getattr(result, name) for name in names}
        linear = linear_rmse(result.recipe, as_records(train), experiments, result.model.delays)
        return cls(result.model, result.history, experiments, summary, linear_rmse=linear)

    def of_role(self, role: str) -> tuple[Experiment, ...]:
        """The experiments of one role.

        Args:
            role: `train` or `test`.
        """
        return tuple(experiment for experiment in self.experiments if experiment.role == role)

    @property
    def judged(self) -> Experiment:
        """What the model is judged by: the first test record, or the training record without one."""
        return (self.of_role("test") or self.of_role("train"))[0]

    @property
    def recipe(self) -> Recipe:
        """What was done to get the model.

        Raises:
            StorageError: the model's provenance does not say it.
        """
        return Recipe.from_dict(self.model.provenance.get("recipe") or {})

    @property
    def scores(self) -> dict[str, Scores]:
        """Scores by role, each record by itself and all of the role together."""
        roles = dict.fromkeys(experiment.role for experiment in self.experiments)
        return {role: _scores(self.of_role(role)) for role in roles}


def _simulate_all(
    model: AnyModel, *, train: Sequence[Record], tests: Sequence[Record] = (), skip: int | None = None
) -> tuple[Experiment, ...]:
    """Free runs of a model over its training and test records; one that diverges says so by its status."""
    roles = [("train", record) for record in train] + [("test", record) for record in tests]
    return tuple(Experiment(role, record, model.simulate(record, throw=False), skip) for role, record in roles)


def _scores(experiments: Sequence[Experiment]) -> Scores:
    simulations = [experiment.simulation for experiment in experiments]
    return score_simulations(simulations, [experiment.record for experiment in experiments], skip=experiments[0].skip)


def linear_rmse(
    recipe: Recipe, train: Sequence[Record], experiments: Sequence[Experiment], delays: tuple[float, ...] = ()
) -> dict[str, float] | None:
    """RMSE of the best linear approximation of the training records, or of their beginnings, over the judged one.

    Inputs are delayed as in the model. A record without a uniform clock is interpolated onto one.
    """
    from tausid.training.start import approximate  # late: simulations need nothing of it

    judged = next((e for e in experiments if e.role == "test"), experiments[0])
    slopes = hold_slopes(recipe.integration.hold, train[0].nu)
    parts = [delay_inputs(record.part(0, LINEAR_SAMPLES // len(train)), delays, slopes) for record in train]
    try:
        linear = approximate(parts, recipe)
        late = delay_inputs(judged.record, delays, slopes)
        record = on_one_clock([late], hold=linear.hold, ts=linear.ts)[0]
        simulated = linear.simulate(record)
    except (TausidError, np.linalg.LinAlgError):
        return None
    scored = record.t >= judged.record.t[judged.score.n_skipped]
    errors = np.sqrt(np.nanmean((record.y[scored] - simulated[scored]) ** 2, axis=0))
    return dict(zip(judged.record.output_names, errors.tolist(), strict=True)) if np.isfinite(errors).all() else None
