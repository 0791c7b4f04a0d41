"""Transport delays: found before training, which sees inputs as they act, and put into the model afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tausid.checks import check_choice, check_number
from tausid.data.clocks import delay_inputs, samples_within
from tausid.data.records import Record, Records, as_records
from tausid.engine.holds import hold_slopes
from tausid.errors import ConfigError
from tausid.linear.delay_estimation import estimate_delays
from tausid.model.ensembles import AnyModel, EnsembleModel
from tausid.model.model import describe_delays
from tausid.model.structure import AUTO
from tausid.training.parts import FromLinear, LevenbergMarquardt
from tausid.training.recipe import Recipe
from tausid.training.result import FitResult


def resolve_delays(
    delays: str | float | Sequence[float] | None, recipe: Recipe, records: Records, *, known: bool
) -> tuple[float, ...]:
    """Seconds after which each input acts; empty for none. `auto` finds them where the start is a linear model."""
    nu = as_records(records)[0].nu
    if delays is None:
        return ()
    if isinstance(delays, str):
        check_choice("delays", delays, (AUTO,))
        from_linear = isinstance(recipe.start, FromLinear) and isinstance(recipe.trainer, LevenbergMarquardt)
        found = estimate_delays(records) if from_linear and not known else ()
        return found if any(found) else ()
    given: tuple[Any, ...] = tuple(delays) if isinstance(delays, Sequence | np.ndarray) else (delays,) * nu
    if len(given) != nu:
        raise ConfigError(f"`delays` must be one number, or one per input; got {len(given)} for {nu} inputs.")
    for delay in given:
        check_number("delays", delay)
    shortest = min(as_records(records), key=len)
    if given and samples_within(shortest, max(given)) + 2 > len(shortest):
        raise ConfigError(f"`delays` must be shorter than the records; got {max(given):g} s for {shortest.name!r}.")
    return tuple(map(float, given)) if any(given) else ()


def delayed(records: Records, delays: tuple[float, ...], recipe: Recipe) -> tuple[Record, ...]:
    """Records with inputs as they act, from where these are known."""
    several = as_records(records)
    slopes = hold_slopes(recipe.integration.hold, several[0].nu)
    late = [delay_inputs(record, delays, slopes) for record in several]
    return tuple(record.part(samples_within(record, max(delays)), len(record)) for record in late)


def with_delays(result: FitResult, delays: tuple[float, ...]) -> FitResult:
    """A fit whose models delay their inputs, and say so."""
    if not delays:
        return result
    told = f"{result.message} Delayed inputs: {describe_delays(delays, result.model.input_names)}."
    members = tuple(with_delays(member, delays) for member in result.members)
    model, last = _delay(result.model, delays), _delay(result.last_model, delays)
    return dataclasses.replace(result, model=model, last_model=last, message=told, members=members)


def _delay(model: AnyModel, delays: tuple[float, ...]) -> AnyModel:
    if isinstance(model, EnsembleModel):
        members = tuple(dataclasses.replace(member, delays=delays) for member in model.members)
        return dataclasses.replace(model, members=members)
    return dataclasses.replace(model, delays=delays)
