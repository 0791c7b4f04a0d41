"""Official scores of benchmarks: the initial state from the official window alone, every later sample scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tausid.data import datasets
from tausid.data.records import Dataset, Record
from tausid.errors import ConfigError
from tausid.model.course import Simulation
from tausid.model.ensembles import AnyModel, EnsembleModel, combine
from tausid.model.evaluation import Scores, score_simulations


def evaluate_official(model: AnyModel, dataset: Dataset | str) -> Scores:
    """Score a model as the benchmark's rules say: the only score with which a rank may be claimed.

    The initial state is estimated from the first `Dataset.score_skip` samples of each test record alone, by least
    squares, and every later sample is scored. Records keep the benchmark's own rate, whatever the model was trained
    with: a continuous-time model is simulated on the finer grid.

    Args:
        model: the model, trained on the benchmark's training record.
        dataset: name of a benchmark, such as `cascaded_tanks`, or a dataset with a `score_skip`.

    Returns:
        The scores of its test records.

    Raises:
        ConfigError: there is no such dataset, or it has no official window.
        DataError: its files are not available, or the model has other channels.
    """
    data = datasets.load(dataset) if isinstance(dataset, str) else dataset
    if data.score_skip == 0:
        raise ConfigError(
            f"an official score must have an official window; dataset {data.name!r} has none. Score it with "
            "`evaluate`, or choose cascaded_tanks, emps or silverbox."
        )
    return evaluate_window(model, data.tests, data.score_skip)


def evaluate_window(model: AnyModel, records: Sequence[Record], window: int) -> Scores:
    """Score records as benchmarks are: the initial state from so many samples alone, every later sample scored."""
    return score_simulations([simulate_window(model, record, window) for record in records], records)


def simulate_window(model: AnyModel, record: Record, window: int) -> Simulation:
    """The free run from the first sample on, whose state is estimated from the window alone."""
    if isinstance(model, EnsembleModel):
        return combine([simulate_window(member, record, window) for member in model.members])
    simulation = model.simulate(record, x0=model.estimate_state(record, window), throw=False)
    return replace(simulation, n_skipped=window, initial_state="refine")
