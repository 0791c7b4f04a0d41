"""From what a model's file holds to the model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tausid.checks import check_number
from tausid.data.scaling import Scaling
from tausid.errors import ConfigError, StorageError
from tausid.model.arrays import SCALING_FIELDS, fill_arrays
from tausid.model.build import Weights, build_state_space
from tausid.model.model import Model
from tausid.model.physics import PLANTS, AbstractPhysics, KnownPart, restore_physics
from tausid.model.state_space import StateSpace
from tausid.model.structure import Integration, Structure, as_settings
from tausid.model.tau import Tau


def make_model(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    content: Mapping[str, Any],
    physics: AbstractPhysics | type[AbstractPhysics] | None,
) -> Model:
    """A model from what its file holds."""
    kind = _find_plant(content["physics"]["name"], physics) if "physics" in content else None
    try:
        structure = Structure(**as_settings(content["structure"]))
        integration = Integration(**as_settings(content["integration"]))
        tau = Tau(arrays["tau.start"], **content["tau"])
        scaling = Scaling(**{name: arrays[f"scaling.{name}"] for name in SCALING_FIELDS})
        known = None
        if kind is not None:
            plant = restore_physics(kind, content["physics"])
            known = KnownPart.start(plant, scaling, trainable=structure.correction != "none")
        skeleton = build_state_space(
            structure,
            tau,
            Weights(),
            nu=len(content["input_names"]),
            ny=len(content["output_names"]),
            n_records=content["n_records"],
            rng=None,
            physics=known,
        )
        return Model(
            state_space=with_limits(fill_arrays(skeleton, arrays), structure, scaling),
            scaling=scaling,
            structure=structure,
            integration=integration,
            ts=content["ts"],
            input_names=tuple(content["input_names"]),
            output_names=tuple(content["output_names"]),
            input_units=tuple(content["input_units"]),
            output_units=tuple(content["output_units"]),
            provenance=content["provenance"],
            delays=_delays(content.get("delays", []), len(content["input_names"])),
            past_span=tuple(span) if (span := content.get("past_span")) else None,
        )
    except (KeyError, TypeError, ConfigError) as error:
        raise StorageError(
            f"model file {path} must describe a tausid model; it does not ({error}). Make it anew."
        ) from None


def _delays(found: object, nu: int) -> tuple[float, ...]:
    """Delays of a file: none, or a number of seconds for each input."""
    if not isinstance(found, list) or len(found) not in (0, nu):
        raise ConfigError(f"`delays` must be a list of {nu} numbers; got {found!r}")
    for delay in found:
        check_number("delays", delay)
    return tuple(map(float, found))


def with_limits(state_space: StateSpace, structure: Structure, scaling: Scaling) -> StateSpace:
    """The model with the limits of its outputs."""
    limits = structure.output_limits
    if isinstance(limits, str):
        return state_space
    lows = [-np.inf if low is None else low for low, _ in limits]
    highs = [np.inf if high is None else high for _, high in limits]
    normalized = [scaling.normalize_y(np.array([ends]))[0].tolist() for ends in (lows, highs)]
    return replace(state_space, limits=tuple(zip(*normalized, strict=True)))


def _find_plant(name: str, given: AbstractPhysics | type[AbstractPhysics] | None) -> type[AbstractPhysics]:
    kind = PLANTS.get(name) if given is None else given if isinstance(given, type) else type(given)
    if kind is None:
        raise ConfigError(
            f"`physics` must be given to read a model with equations of your own; this one has {name!r}. "
            f"Write load_model(path, physics={name})."
        )
    if kind.__name__ != name:
        raise ConfigError(
            f"`physics` must be the class that the model was fitted with, {name!r}; got {kind.__name__!r}. "
            "Give that class."
        )
    return kind
