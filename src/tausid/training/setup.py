"""What is trained on what: the settings that records call for, the start of tau and weights, the first model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tausid.data.clocks import has_one_clock, median_step, spans
from tausid.data.records import Record, Records
from tausid.data.scaling import Scaling
from tausid.errors import ConfigError
from tausid.linear import LinearModel
from tausid.linear.tau_estimation import TauEstimate
from tausid.model.build import build_state_space
from tausid.model.config import RECIPES, Config, recipe_config
from tausid.model.course import longest_step, make_integrator
from tausid.model.model import Model
from tausid.model.physics import AbstractPhysics
from tausid.model.restore import with_limits
from tausid.model.tau import Tau
from tausid.training.choosing import UNDECIDED
from tausid.training.known import KnownStart, fit_known, start_from_known
from tausid.training.limits import settle_limits
from tausid.training.loop import Problem, Stage
from tausid.training.protocols import Split
from tausid.training.starting import Start, find_start, settle_initial_samples, settle_order, start_from_bla
from tausid.training.windows import WindowSource

# Samples of all training records beyond which the default recipe holds out their end in place of folds.
FOLDED_SAMPLES = 20_000
# Samples of a stretch that its folds are long enough for: some for an initial state, and as many to be scored.
SHORTEST_STRETCH = 40
# What the default recipe leaves to known equations: the start, the states (they say later how many there are), and the
# outputs, which no network adds to. What corrects them is held back more than what has nothing to go by.
WITH_PHYSICS = {
    **UNDECIDED,
    "init": "random",
    "nx": 1,
    "output_limits": "none",
    "nonlinear_decay": 1e-4,
}


def choose_settings(
    recipe: str,
    settings: Mapping[str, Any],
    *,
    records: Sequence[Record] = (),
    physics: AbstractPhysics | str | None = None,
    validation: Records | None = None,
) -> Config:
    """The settings of a recipe with changes; `default` gives way to what it cannot do.

    It grows out of a linear approximation, and is `windows` where there is none, without inputs; known equations are a
    start of their own. It has no folds where something else is held out, and holds out the end of records that are
    long enough to spare it.
    """
    if recipe != "default":
        return recipe_config(recipe, **settings)
    if physics is None and records and records[0].nu == 0:
        return recipe_config("windows", **settings)
    if physics is not None:
        settings = {**WITH_PHYSICS, **settings}
    if validation is not None or settings.get("validation_fraction") or settings.get("protocol") == "paper":
        return recipe_config(recipe, **{"folds": 0, **settings})
    return recipe_config(recipe, **{**_what_is_held_out(records), **settings})


def _what_is_held_out(records: Sequence[Record]) -> dict[str, Any]:
    """How the default recipe holds out: by fewer folds where records are short, by the end of long ones."""
    usual = RECIPES["default"].folds
    lengths = [len(record) for record in records]
    if sum(lengths) > FOLDED_SAMPLES:
        return {"folds": 0, "validation_fraction": 0.2}
    folds = min(max(lengths, default=usual * SHORTEST_STRETCH) // SHORTEST_STRETCH, usual)
    return {"folds": folds if folds > 1 else 0}


def settle(config: Config, records: Sequence[Record]) -> Config:
    """The settings with what depends on the records: whether the encoder sees time stamps, and limits
    of the outputs.
    """
    weights = config.output_weights
    if weights is not None and len(weights) != records[0].ny:
        raise ConfigError(
            f"`output_weights` must have one number per output; got {len(weights)} for {records[0].ny} outputs. "
            f"Give {records[0].ny}."
        )
    config = dataclasses.replace(config, output_limits=settle_limits(config.output_limits, records))
    if config.clock != "auto" or has_one_clock(records):
        return config
    return dataclasses.replace(config, clock="irregular")


def start_problem(
    config: Config,
    tau: float | Sequence[float] | str | Tau | TauEstimate,
    split: Split,
    plant: AbstractPhysics | None = None,
    bla: LinearModel | None = None,
    scaling: Scaling | None = None,
) -> Problem:
    """A problem whose start is found from its training records: tau, the weights, the parameters of known equations."""
    if bla is None:
        config, bla = settle_order(config, split.train)
    start = find_start(tau, split.train, config, bla)
    config = settle_initial_samples(config, start.tau, split.train)
    if plant is not None and config.correction == "none" and start.tau.trainable:
        raise ConfigError(
            "`tau` must not be trained where no network corrects known equations, as nothing depends on it then; "
            f"got {tau!r}. Leave it out, or set correction='network'."
        )
    known = None if plant is None else fit_known(plant, split.train, config, scaling)
    return make_problem(config, start, split, known, scaling)


def make_problem(
    config: Config, start: Start, split: Split, known: KnownStart | None = None, scaling: Scaling | None = None
) -> Problem:
    """Scaling, windows and untrained model for these records."""
    first = split.train[0]
    ts = median_step(split.train)
    scaling = scaling or Scaling.from_records(split.train)
    state_space = build_state_space(
        config,
        start.tau,
        nu=first.nu,
        ny=first.ny,
        n_records=len(split.train),
        rng=np.random.default_rng(config.seed),
        physics=None if known is None else known.known,
    )
    n_past = state_space.initial.n_past
    sees_time = config.clock == "irregular" and n_past > 0
    make_windows = functools.partial(
        WindowSource.from_records,
        scaling=scaling,
        n_past=n_past,
        longest=longest_step(config, ts),
        hold=config.hold,
        ts=ts if sees_time else None,
    )
    stages = make_stages(config, functools.partial(make_windows, split.train))
    windows_validate = config.validation_error == "windows" and split.validation
    bla = start.bla if config.init == "bla" else None
    if bla is not None:
        state_space = start_from_bla(state_space, bla, split.train, stages[0].source)
    if known is not None:
        state_space = start_from_known(state_space, known, stages[0].source)
    model = Model(
        state_space=with_limits(state_space, config, scaling),
        scaling=scaling,
        integrator=make_integrator(config, ts),
        ts=ts,
        config=config,
        input_names=first.input_names,
        output_names=first.output_names,
        input_units=first.input_units,
        output_units=first.output_units,
        past_span=spans(split.train, n_past) if sees_time else None,
    )
    validated = make_windows(split.validation, horizon=config.horizons[-1]) if windows_validate else None
    return Problem(config, split, model, stages, validated, linear_order=None if bla is None else bla.order)


def make_stages(config: Config, make_windows: Callable[..., WindowSource]) -> tuple[Stage, ...]:
    """Training windows of each horizon, for equal shares of the steps and with about as many samples per step."""
    # Without Adam the windows only show where the encoder looks at.
    horizons = config.horizons if config.max_steps > 0 or config.initial_state == "free" else (2,)
    sources = [make_windows(horizon=horizon) for horizon in horizons]
    first, shared = sources[0], ("u", "y", "measured", "dt", "rows", "lag")
    stages = []
    for i, source in enumerate(sources, 1):
        batch = max(1, round(config.batch * first.horizon / source.horizon))
        same = dataclasses.replace(source, **{name: getattr(first, name) for name in shared})
        stages.append(Stage(same, batch, round(config.max_steps * i / len(sources))))
    return tuple(stages)
