"""Several models as one: their robust mean, the band between them, one file; and how model files are read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.records import Record
from tausid.data.scaling import Scaling
from tausid.display import html_table
from tausid.engine.integrators import FixedStep, Integrator
from tausid.errors import ConfigError, DivergenceError
from tausid.model.course import Simulation
from tausid.model.file_schema import EnsembleContent, ModelContent, read_provenance
from tausid.model.model import InitialValue, Model, input_record
from tausid.model.physics import AbstractPhysics, KnownPart
from tausid.model.restore import make_model
from tausid.model.state_space import StateSpace
from tausid.model.structure import Integration, Structure
from tausid.schema import SchemaError, as_schema
from tausid.shapes import ArrayLike, Float
from tausid.storage import described, read_arrays, write_arrays

# What the model's file is called in the folder of a run.
MODEL_FILE = "model.safetensors"
# Share of the members that the trimmed mean leaves out at each end.
TRIM = 0.2
# The band holds the members between these quantiles.
BAND = (0.1, 0.9)


@dataclass(frozen=True, eq=False, repr=False)
class EnsembleModel:
    """Several models of the same data, simulated as one: at each sample the trimmed mean of their outputs.

    The mean leaves out a fifth of the members at each end (of three it is the median). What belongs to one model only
    (states, tau, settings) is that of the first member, the best one.

    Args:
        members: the models, the best first.
        scores: their held-out errors, normalized, in the same order; NaN where nothing was held out.
        provenance: where they came from; plain JSON values.

    Raises:
        ConfigError: no members, another number of scores, or members with different channels.
    """

    members: tuple[Model, ...]
    scores: tuple[float, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.members or len(self.scores) != len(self.members):
            raise ConfigError(
                f"an ensemble must have members, and one score each; got {len(self.members)} members and "
                f"{len(self.scores)} scores."
            )
        if len({(model.input_names, model.output_names) for model in self.members}) > 1:
            raise ConfigError(
                "members of an ensemble must have the same channels; they differ. Fit them to one record."
            )

    def __repr__(self) -> str:
        return f"EnsembleModel({len(self.members)} members, the best is {self.best!r})"

    def _repr_html_(self) -> str:
        rows = [
            (_member_name(i + 1, model), f"held-out error {score:.4g}")
            for i, (model, score) in enumerate(zip(self.members, self.scores, strict=True))
        ]
        return html_table("Ensemble: errors over the outputs' standard deviation", rows) + self.best._repr_html_()

    @property
    def best(self) -> Model:
        """The first member."""
        return self.members[0]

    @property
    def state_space(self) -> StateSpace:
        """That of the best member."""
        return self.best.state_space

    @property
    def scaling(self) -> Scaling:
        """That of the best member."""
        return self.best.scaling

    @property
    def integrator(self) -> FixedStep:
        """That of the best member."""
        return self.best.integrator

    @property
    def ts(self) -> float:
        """Sampling time of the training data in seconds."""
        return self.best.ts

    @property
    def delays(self) -> tuple[float, ...]:
        """Seconds after which each input acts; empty for none."""
        return self.best.delays

    @property
    def structure(self) -> Structure:
        """What the best member is made of."""
        return self.best.structure

    @property
    def integration(self) -> Integration:
        """How the best member is integrated."""
        return self.best.integration

    @property
    def input_names(self) -> tuple[str, ...]:
        """One name per input."""
        return self.best.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """One name per output."""
        return self.best.output_names

    @property
    def input_units(self) -> tuple[str, ...]:
        """One unit per input."""
        return self.best.input_units

    @property
    def output_units(self) -> tuple[str, ...]:
        """One unit per output."""
        return self.best.output_units

    @property
    def physics(self) -> KnownPart | None:
        """The known equations of the best member."""
        return self.best.physics

    @property
    def tau(self) -> float | tuple[float, ...]:
        """The normalization constant of the best member, in seconds."""
        return self.best.tau

    @property
    def ts_over_tau(self) -> float:
        """The normalized sampling time of the best member."""
        return self.best.ts_over_tau

    def simulate(
        self,
        record: Record | None = None,
        *,
        u: ArrayLike | None = None,
        t: ArrayLike | None = None,
        dt: float | None = None,
        x0: InitialValue = None,
        integrator: Integrator | None = None,
        throw: bool = True,
    ) -> Simulation:
        """Simulate the record's inputs with every member, each from its own initial state.

        Args:
            record: as for `Model.simulate`.
            u: as for `Model.simulate`.
            t: as for `Model.simulate`.
            dt: as for `Model.simulate`.
            x0: as for `Model.simulate`, but for a state, which would be that of one member only.
            integrator: as for `Model.simulate`.
            throw: whether it raises where every member diverges; else the status says so.

        Returns:
            The trimmed mean of the members that stay finite, the band that four fifths of them lie in, and the states
            of the best of them.

        Raises:
            ConfigError: `x0` is a state.
            DataError: other channels than the model's, or too few samples for the initial state.
            DivergenceError: all members diverged.
        """
        self._check_x0(x0)
        record = input_record(self.best, u, t) if record is None else record
        every = [m.simulate(record, dt=dt, x0=x0, integrator=integrator, throw=False) for m in self.members]
        combined = combine(every)
        if combined.status == "diverged" and throw:
            raise DivergenceError(
                f"the simulation of {record.name!r} must stay finite in one member at least; it does in none of "
                f"{len(every)}. Check that the inputs lie in the range of the training data."
            )
        return combined

    def check(self, record: Record, *, x0: ArrayLike | str | None = None) -> None:
        """Check that the record can be simulated, without doing it.

        Args:
            record: the record.
            x0: as for `simulate`.

        Raises:
            ConfigError: `x0` is a state.
            DataError: other channels than the model's, or no initial state from its first samples.
        """
        self._check_x0(x0)
        for member in self.members:
            member.check(record, x0=x0)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all members to one file: safetensors and JSON, nothing that can run.

        Args:
            path: where to write; usually ends in `.safetensors`.

        Returns:
            The path.

        Raises:
            StorageError: the file cannot be written.
        """
        arrays = {f"{i}.{name}": a for i, member in enumerate(self.members) for name, a in member.arrays().items()}
        content = {
            "members": [member.content() for member in self.members],
            "scores": [None if np.isnan(score) else score for score in self.scores],
            "provenance": dict(self.provenance),
        }
        return write_arrays(path, arrays, kind="model", content=content)

    def _check_x0(self, x0: InitialValue) -> None:
        if x0 is not None and not isinstance(x0, str | Mapping | Record):
            raise ConfigError(
                "`x0` of an ensemble must be 'encoder', 'refine', 'rest', outputs at rest or a record, as every member "
                "has states of its own; got a state. Simulate one of its `members` from it."
            )


AnyModel = Model | EnsembleModel


def combine(simulations: Sequence[Simulation]) -> Simulation:
    """The simulations of several members as one; the first of them where all diverged."""
    good = [simulation for simulation in simulations if simulation.status == "ok"]
    if not good:
        return simulations[0]
    y = np.stack([simulation.y for simulation in good])  # (members, N, ny)
    y[:, np.isnan(y).any(axis=(0, 2))] = np.nan  # with other delays some begin later
    low, high = np.quantile(y, BAND, axis=0)
    skipped = max(simulation.n_skipped for simulation in good)
    return replace(good[0], y=trimmed_mean(y), low=low, high=high, n_skipped=skipped)


def _member_name(number: int, model: Model) -> str:
    seed = model.provenance.get("seed")
    return f"member {number}" if seed is None else f"member {number}, seed {seed}"


def trimmed_mean(values: Float[np.ndarray, "members *shape"]) -> Float[np.ndarray, "*shape"]:
    """The mean over the first axis without the fifth at each end; of three the median.

    Example:
        >>> trimmed_mean(np.array([1.0, 2.0, 3.0, 4.0, 500.0])).item()
        3.0
    """
    cut = trimmed_at_each_end(len(values))
    return np.asarray(np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0))


def trimmed_at_each_end(members: int) -> int:
    """How many members the trimmed mean leaves out at each end."""
    return min(round(TRIM * members), (members - 1) // 2)


def load_model(
    path: str | os.PathLike[str], *, physics: AbstractPhysics | type[AbstractPhysics] | None = None
) -> AnyModel:
    """Read a model that `Model.save` or `EnsembleModel.save` wrote.

    Args:
        path: the file, or the folder of a run.
        physics: class of the known equations, where it is not one of the package's own: a file holds its name and
            numbers, and no program.

    Returns:
        The model, or the ensemble.

    Raises:
        StorageError: the file is missing, truncated, corrupted, of another program or of a future version.
        ConfigError: the class of its known equations must be given, or is another.
    """
    path = Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)
    arrays, content = read_arrays(path, kind="model")
    with described(path, "model"):
        if not isinstance(content, dict) or "members" not in content:
            return make_model(arrays, as_schema(content, ModelContent), physics)
        return _make_ensemble(arrays, as_schema(content, EnsembleContent), physics)


def _make_ensemble(
    arrays: Mapping[str, np.ndarray],
    content: EnsembleContent,
    physics: AbstractPhysics | type[AbstractPhysics] | None,
) -> EnsembleModel:
    members = []
    for i, part in enumerate(content.members):
        own = {name.removeprefix(f"{i}."): a for name, a in arrays.items() if name.startswith(f"{i}.")}
        members.append(make_model(own, part, physics))
    scores = tuple(float("nan") if score is None else score for score in content.scores)
    try:
        return EnsembleModel(tuple(members), scores, read_provenance(content.provenance))
    except ConfigError as error:
        raise SchemaError(str(error)) from None
