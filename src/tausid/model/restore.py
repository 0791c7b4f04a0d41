"""From what a model's file holds to the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tausid.data.scaling import Scaling
from tausid.errors import ConfigError
from tausid.model.arrays import SCALING_FIELDS, fill_arrays, named_arrays, scaling_arrays
from tausid.model.build import Weights, build_state_space
from tausid.model.file_schema import ModelContent, read_parts, read_provenance
from tausid.model.initial import SEEN_STATES, FreeState
from tausid.model.model import Model
from tausid.model.physics import AbstractPhysics, KnownPart, check_physics, restore_physics
from tausid.model.state_space import StateSpace
from tausid.model.structure import Structure
from tausid.model.tau import Tau
from tausid.schema import SchemaError


def make_model(
    arrays: Mapping[str, np.ndarray],
    content: ModelContent,
    physics: AbstractPhysics | type[AbstractPhysics] | None,
) -> Model:
    """A model from what its file holds; nothing is allocated that the file does not hold."""
    kind = None if content.physics is None else _find_plant(content.physics.name, physics)
    structure, integration = read_parts(content)
    scaling = _read_scaling(arrays, content)
    try:
        tau = Tau(_array(arrays, "tau.start"), trainable=content.tau.trainable, source=content.tau.source)
        skeleton = build_state_space(
            structure,
            tau,
            Weights(A="zero-mean"),
            nu=len(content.input_names),
            ny=len(content.output_names),
            n_records=content.n_records,
            rng=None,
            physics=None if kind is None else _read_physics(kind, content, scaling, structure),
        )
    except ConfigError as error:
        raise SchemaError(str(error)) from None
    space = fill_arrays(_with_seen(skeleton, arrays), arrays)
    _check_arrays(arrays, {*named_arrays(space), *scaling_arrays(scaling)})
    with np.errstate(over="ignore"):
        if not np.isfinite(space.tau.now).all():
            raise SchemaError("`tau`, its start times its factor, must be finite; it is infinite")
    return Model(
        state_space=with_limits(space, structure, scaling),
        scaling=scaling,
        structure=structure,
        integration=integration,
        ts=content.ts,
        input_names=content.input_names,
        output_names=content.output_names,
        input_units=content.input_units,
        output_units=content.output_units,
        provenance=read_provenance(content.provenance),
        delays=content.delays,
        past_span=content.past_span,
    )


def _with_seen(skeleton: StateSpace, arrays: Mapping[str, np.ndarray]) -> StateSpace:
    """A free initial state has room for as many states as the file holds; older ones hold fewer."""
    initial, found = skeleton.initial, arrays.get("initial.seen")
    rows = 0 if found is None or found.ndim != 2 else len(found)
    if not isinstance(initial, FreeState) or not 1 <= rows < SEEN_STATES:
        return skeleton
    return replace(skeleton, initial=replace(initial, seen=initial.seen[:rows]))


def _array(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    found = arrays.get(name)
    if found is None or found.dtype.kind != "f" or shape not in (None, found.shape):
        held = "nothing" if found is None else f"{found.dtype} of shape {found.shape}"
        raise SchemaError(
            f"array `{name}` must hold numbers{'' if shape is None else f' of shape {shape}'}; got {held}"
        )
    return found


def _read_scaling(arrays: Mapping[str, np.ndarray], content: ModelContent) -> Scaling:
    counts = {"u": len(content.input_names), "y": len(content.output_names)}
    scaling = Scaling(**{name: _array(arrays, f"scaling.{name}", (counts[name[0]],)) for name in SCALING_FIELDS})
    if not all((deviations > 0).all() for deviations in (scaling.u_std, scaling.y_std)):
        raise SchemaError("deviations of channels, `scaling.u_std` and `scaling.y_std`, must be positive")
    return scaling


def _read_physics(
    kind: type[AbstractPhysics], content: ModelContent, scaling: Scaling, structure: Structure
) -> KnownPart:
    assert content.physics is not None
    plant = restore_physics(kind, content.physics.fields)
    check_physics(plant, nu=len(content.input_names), ny=len(content.output_names))
    if structure.order < len(plant.states):
        raise SchemaError(
            f"`nx` must be at least the {len(plant.states)} states of {kind.__name__}; got {structure.nx}"
        )
    return KnownPart.start(plant, scaling, trainable=structure.correction != "none")


def _check_arrays(arrays: Mapping[str, np.ndarray], known: set[str]) -> None:
    """All arrays are the model's, and finite; a parameter's deviation may be unknown."""
    for name, array in arrays.items():
        if name not in known:
            raise SchemaError(f"array {name!r} is none of such a model")
        if name != "physics.units.deviation" and not np.isfinite(array).all():
            raise SchemaError(f"array `{name}` must be finite; it holds NaN or infinity")


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
    from tausid.model.physics import PLANTS  # late: few models have known equations

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
