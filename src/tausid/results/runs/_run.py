"""A finished fit with its records and free runs, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tausid.model.ensembles import AnyModel
from tausid.model.evaluation import Score, Scores, score_simulation, score_simulations
from tausid.data.records import Record, Records, as_records
from tausid.model.course import Simulation
from tausid.training import FitResult, HistoryRow

MODEL = "model.safetensors"


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
        model_file: name of the model file.
    """

    model: AnyModel
    history: tuple[HistoryRow, ...]
    experiments: tuple[Experiment, ...]
    summary: Mapping[str, Any]
    name: str = ""
    command: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    model_file: str = MODEL

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
        experiments = simulate_all(result.model, train=as_records(train), tests=held_out, skip=skip)
        return cls(result.model, result.history, experiments, {name: getattr(result, name) for name in names})

    def of_role(self, role: str) -> tuple[Experiment, ...]:
        """The experiments of one role.

        Args:
            role: `train` or `test`.

        Returns:
            The experiments.
        """
        return tuple(experiment for experiment in self.experiments if experiment.role == role)

    @property
    def scores(self) -> dict[str, Scores]:
        """Scores by role, each record by itself and all of the role together."""
        roles = dict.fromkeys(experiment.role for experiment in self.experiments)
        return {role: _scores(self.of_role(role)) for role in roles}


def simulate_all(
    model: AnyModel, *, train: Sequence[Record], tests: Sequence[Record] = (), skip: int | None = None
) -> tuple[Experiment, ...]:
    """Free runs of a model over its training and test records; one that diverges says so by its status.

    Args:
        model: the model.
        train: the training records.
        tests: records to test with.
        skip: leading samples not to score.

    Returns:
        The experiments, training records first.
    """
    roles = [("train", record) for record in train] + [("test", record) for record in tests]
    return tuple(Experiment(role, record, model.simulate(record, throw=False), skip) for role, record in roles)


def _scores(experiments: Sequence[Experiment]) -> Scores:
    simulations = [experiment.simulation for experiment in experiments]
    return score_simulations(simulations, [experiment.record for experiment in experiments], skip=experiments[0].skip)
