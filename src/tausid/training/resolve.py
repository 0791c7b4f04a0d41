"""From a recipe and records to a problem: the only place where `auto` becomes a value."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tausid.data.clocks import has_one_clock, median_step, spans
from tausid.data.outliers import find_outliers
from tausid.data.records import Record, Records, as_records
from tausid.data.scaling import Scaling
from tausid.errors import ConfigError
from tausid.linear import LinearModel
from tausid.model.build import build_state_space
from tausid.model.model import Model
from tausid.model.physics import AbstractPhysics
from tausid.model.restore import with_limits
from tausid.model.state_space import StateSpace
from tausid.model.structure import AUTO, LEAST_FOR_INITIAL_STATE
from tausid.model.tau import Tau
from tausid.training.holdout import Split, split_records
from tausid.training.limits import resolve_limits
from tausid.training.parts import (
    ROBUST,
    SQUARES,
    Adam,
    Folds,
    FromLinear,
    Given,
    LastShare,
    LevenbergMarquardt,
    PaperTestHalf,
    RandomDynamics,
    Search,
)
from tausid.training.problem import Problem
from tausid.training.recipe import Recipe
from tausid.training.start import (
    PER_STATE,
    AnyTau,
    Start,
    approximate,
    as_tau,
    find_start,
    start_from_bla,
    start_random_dynamics,
)

# What `auto` begins with where held-out data may prefer something else, and what it is without any.
FIRST_CHOICE = {"network": "mlp", "activation": "leaky_relu", "nonlinear_g": False}
ONLY_CHOICE = {**FIRST_CHOICE, "nonlinear_g": True}
# Folds of the default recipe, and samples of a stretch that folds are long enough for: some for an initial state, and
# as many to be scored.
USUAL_FOLDS, SHORTEST_STRETCH = 4, 40
# Outputs of all training records beyond which the default recipe holds out their end in place of folds.
FOLDED_OUTPUTS = 10_000
# Of the models that each trainer gives.
PRECISION = {LevenbergMarquardt.kind: np.float64, Adam.kind: np.float32}
# An initial state has shown itself after so many tau; records are not spent on it beyond this share.
TAUS_OF_INITIAL_STATE, MOST_OF_A_RECORD = 3, 1 / 8


@dataclass(frozen=True, eq=False)
class Task:
    """A fit that is ready to begin.

    Args:
        asked: the recipe with what is still left to held-out data as `auto`.
        problem: the first problem, on all training records.
        tau: as it was given.
        plant: known equations, or None.
    """

    asked: Recipe
    problem: Problem
    tau: AnyTau
    plant: AbstractPhysics | None
    _linear: dict[tuple[int, tuple[Record, ...]], LinearModel] = field(default_factory=dict)
    _locks: dict[tuple[int, tuple[Record, ...]], threading.Lock] = field(default_factory=dict)

    @property
    def held_out(self) -> bool:
        """Whether something is held out."""
        return bool(self.problem.split.validation) or isinstance(self.problem.recipe.holdout, Folds)

    def fresh(self) -> Task:
        """The same task without what was found on the way, for another process."""
        return dataclasses.replace(self, problem=dataclasses.replace(self.problem), _linear={}, _locks={})

    def start(self, recipe: Recipe, split: Split, scaling: Scaling, variant: tuple[int, int] = (0, 0)) -> Problem:
        """The same task with another structure, on other records, and with other random weights."""
        # One tau per state is as long as the states of each structure.
        tau: AnyTau = self.tau if self.tau == PER_STATE else self.problem.initial_model.state_space.tau
        bla = self._approximation(recipe, split.train)
        return start_problem(recipe, self.problem.seed, tau, split, self.plant, bla, scaling, variant)

    def random_starts(self, problem: Problem, count: int) -> list[StateSpace]:
        """The start of a problem with random dynamics, and further ones."""
        seeds = [problem.seed, 3, problem.variant] if problem.variant else [problem.seed, 3]
        start, rng = problem.first_weights, np.random.default_rng(seeds)
        return [start, *(start_random_dynamics(start, rng) for _ in range(count - 1))]

    def _approximation(self, recipe: Recipe, records: tuple[Record, ...]) -> LinearModel | None:
        """The linear approximation of these records alone with as many states, found once: a fold must not know what
        it holds out."""
        if not isinstance(recipe.start, FromLinear):
            return None
        key = (recipe.structure.order, records)
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._linear:
                self._linear[key] = approximate(records, recipe, order=recipe.structure.order)
            return self._linear[key]


def resolve(
    recipe: Recipe,
    records: Records,
    *,
    tau: AnyTau,
    seed: int,
    plant: AbstractPhysics | None = None,
    validation: Records | None = None,
    test: Records | None = None,
) -> Task:
    """What `auto` is for these records, one setting after the other; each may depend on those before it."""
    recipe = resolve_holdout(recipe, as_records(records), validation)
    recipe = _resolve_states_of_tau(recipe, tau)
    split = split_records(recipe, records, validation=validation, test=test)
    recipe = _resolve_outputs(recipe, split.train)
    recipe = _resolve_loss(recipe, split)
    recipe = _resolve_clock(recipe, split.train)
    recipe = _resolve_physics(recipe, plant, split.train)
    first = _resolve_network(recipe, held_out=bool(split.validation) or isinstance(recipe.holdout, Folds))
    problem = start_problem(first, seed, tau, split, plant)
    return Task(recipe, problem, tau, plant)


def resolve_holdout(recipe: Recipe, records: Sequence[Record], validation: Records | None) -> Recipe:
    """Given records are what is held out; `auto` is folds, fewer where records are short, or the end of long ones."""
    if validation is not None:
        if isinstance(recipe.holdout, Folds | PaperTestHalf):
            raise ConfigError(
                f"holdout {recipe.holdout.kind!r} must have no validation records, as it holds out other ones; got "
                "some. Leave them out, or leave the holdout to tausid."
            )
        return dataclasses.replace(recipe, holdout=Given())
    if isinstance(recipe.holdout, Given):
        raise ConfigError("holdout 'given' must have validation records; got none. Give some, or another holdout.")
    if recipe.holdout != AUTO:
        return recipe
    lengths = [len(record) for record in records]
    if sum(lengths) * records[0].ny > FOLDED_OUTPUTS:
        return dataclasses.replace(recipe, holdout=LastShare())
    folds = min(max(lengths) // SHORTEST_STRETCH, USUAL_FOLDS)
    return dataclasses.replace(recipe, holdout=Folds(folds) if folds > 1 else None)


def _resolve_states_of_tau(recipe: Recipe, tau: AnyTau) -> Recipe:
    """As many states as `tau` has values, where it has one per state."""
    if recipe.structure.nx != AUTO or isinstance(tau, str):
        return recipe
    values = as_tau(tau).start
    return recipe if values.ndim == 0 else _with_order(recipe, len(values))


def _resolve_outputs(recipe: Recipe, records: Sequence[Record]) -> Recipe:
    """Limits that the outputs run into, and one weight per output."""
    weights, ny = recipe.trainer.output_weights, records[0].ny
    if weights is not None and len(weights) != ny:
        raise ConfigError(
            f"`output_weights` must have one number per output; got {len(weights)} for {ny} outputs. Give {ny}."
        )
    return recipe.with_structure(output_limits=resolve_limits(recipe.structure.output_limits, records))


def _resolve_loss(recipe: Recipe, split: Split) -> Recipe:
    """Robust where outputs have outliers, by the rule of `look`."""
    trainer = recipe.trainer
    if not isinstance(trainer, LevenbergMarquardt) or trainer.loss != AUTO:
        return recipe
    outputs = [y for record in (*split.train, *split.validation) for y in record.y.T]
    loss = ROBUST if any(len(find_outliers(y)) for y in outputs) else SQUARES
    return dataclasses.replace(recipe, trainer=dataclasses.replace(trainer, loss=loss))


def _resolve_clock(recipe: Recipe, records: Sequence[Record]) -> Recipe:
    """Whether an encoder sees time stamps."""
    if recipe.structure.clock != AUTO:
        return recipe
    return recipe.with_structure(clock="regular" if has_one_clock(records) else "irregular")


def _resolve_physics(recipe: Recipe, plant: AbstractPhysics | None, records: Sequence[Record]) -> Recipe:
    """What known equations ask for."""
    if plant is not None:
        from tausid.training.greybox import resolve_physics

        return resolve_physics(recipe, plant, records)
    if recipe.structure.correction != "none":
        raise ConfigError(
            f"`correction` must have known equations to correct; got {recipe.structure.correction!r} and no physics. "
            "Give physics, or leave it out."
        )
    return recipe


def _resolve_network(recipe: Recipe, *, held_out: bool) -> Recipe:
    """The first choice of what held-out data choose, or the only one without such data."""
    searched = held_out and isinstance(recipe.search, Search) and isinstance(recipe.trainer, LevenbergMarquardt)
    values = FIRST_CHOICE if searched else ONLY_CHOICE
    open_ones = {name: value for name, value in values.items() if getattr(recipe.structure, name) == AUTO}
    return recipe.with_structure(**open_ones)


def _resolve_order(recipe: Recipe, records: Sequence[Record]) -> tuple[Recipe, LinearModel | None]:
    """As many states as a linear approximation has."""
    if recipe.structure.nx != AUTO:
        return recipe, None
    bla = approximate(records, recipe)
    return _with_order(recipe, bla.order), bla


def _with_order(recipe: Recipe, order: int) -> Recipe:
    """With so many states; an encoder sees two samples for each at least."""
    structure = recipe.structure
    if structure.initial_state == "free":
        return recipe.with_structure(nx=order)
    na, nb = (max(samples, 2 * order) if samples > 0 else 0 for samples in (structure.na, structure.nb))
    return recipe.with_structure(nx=order, na=na, nb=nb)


def _resolve_initial_samples(recipe: Recipe, tau: Tau, records: Sequence[Record]) -> Recipe:
    """As many samples as show a free initial state; the least where an encoder says it, and may be refined."""
    if recipe.structure.initial_samples != AUTO:
        return recipe
    if recipe.structure.initial_state != "free":
        return recipe.with_structure(initial_samples=LEAST_FOR_INITIAL_STATE)
    shown = math.ceil(TAUS_OF_INITIAL_STATE * float(np.max(tau.start)) / median_step(records))
    most = round(MOST_OF_A_RECORD * min(len(record) for record in records))
    return recipe.with_structure(initial_samples=max(LEAST_FOR_INITIAL_STATE, min(shown, most)))


def start_problem(
    recipe: Recipe,
    seed: int,
    tau: AnyTau,
    split: Split,
    plant: AbstractPhysics | None = None,
    bla: LinearModel | None = None,
    scaling: Scaling | None = None,
    variant: tuple[int, int] = (0, 0),
) -> Problem:
    """A problem whose start is found from its training records: tau, the weights, the parameters of known equations.

    The linear approximation and the scaling are those of the training records, unless they are given.
    """
    if bla is None:
        recipe, bla = _resolve_order(recipe, split.train)
    start = find_start(tau, split.train, recipe, bla)
    recipe = _resolve_initial_samples(recipe, start.tau, split.train)
    if plant is not None and recipe.structure.correction == "none" and start.tau.trainable:
        raise ConfigError(
            "`tau` must not be trained where no network corrects known equations, as nothing depends on it then; "
            f"got {tau!r}. Leave it out, or set structure.correction=network."
        )
    known = None
    if plant is not None:
        from tausid.training.greybox import fit_known

        known = fit_known(plant, split.train, recipe, scaling)
    rng = np.random.default_rng([seed, *variant] if any(variant) else seed)
    model = _untrained_model(recipe, rng, start, split, known, scaling)
    from_linear = recipe.start.kind == "from-linear" and start.bla is not None
    horizon = recipe.trainer.horizon if isinstance(recipe.trainer, Adam) else 2
    state_space = model.state_space
    if from_linear:
        assert start.bla is not None
        state_space = start_from_bla(model, start.bla, split.train, horizon)
    elif isinstance(recipe.start, RandomDynamics):
        state_space = start_random_dynamics(state_space, rng)
    if known is not None:
        from tausid.training.greybox import start_from_known

        state_space = start_from_known(model, known, split.train, horizon)
    state_space = with_limits(state_space, recipe.structure, model.scaling)
    model = dataclasses.replace(model, state_space=state_space)
    return Problem(recipe, seed, split, model, variant=variant[1])


def _untrained_model(
    recipe: Recipe, rng: np.random.Generator, start: Start, split: Split, known: Any, scaling: Scaling | None
) -> Model:
    first, structure = split.train[0], recipe.structure
    state_space = build_state_space(
        structure,
        start.tau,
        dataclasses.replace(recipe.start.weights, dtype=PRECISION[recipe.trainer.kind]),
        nu=first.nu,
        ny=first.ny,
        n_records=len(split.train),
        rng=rng,
        physics=None if known is None else known.known,
    )
    n_past = state_space.initial.n_past
    return Model(
        state_space=state_space,
        scaling=scaling or Scaling.from_records(split.train),
        structure=structure,
        integration=recipe.integration,
        ts=median_step(split.train),
        input_names=first.input_names,
        output_names=first.output_names,
        input_units=first.input_units,
        output_units=first.output_units,
        past_span=spans(split.train, n_past) if structure.clock == "irregular" and n_past > 0 else None,
    )
