"""What a model's file may say: the schema that its JSON must keep, and what is made of provenance that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tausid.data.records import check_labels, check_unique
from tausid.engine.holds import hold_slopes
from tausid.errors import ConfigError
from tausid.model.course import make_integrator
from tausid.model.structure import AUTO, Integration, Structure, as_settings
from tausid.schema import Count, NotNegative, Positive, SchemaError, Strict, Text, as_schema

Several = Annotated[int, Meta(ge=1, le=2**31 - 1)]
DROPPED = "dropped"  # the key under which provenance says why there is none


class TauContent(Strict, frozen=True):
    """How tau came to be; its numbers are arrays."""

    trainable: bool
    source: Text


class PhysicsContent(Strict, frozen=True):
    """Known equations: the name of their class, and its fields."""

    name: Text
    fields: dict[Text, Any]


class ModelContent(Strict, frozen=True):
    """All that a file says of one model, but for its arrays."""

    structure: dict[str, Any]
    integration: dict[str, Any]
    tau: TauContent
    n_records: Several
    ts: Positive
    input_names: tuple[Text, ...]
    output_names: Annotated[tuple[Text, ...], Meta(min_length=1)]
    input_units: tuple[Text, ...]
    output_units: tuple[Text, ...]
    provenance: Any = None
    delays: tuple[NotNegative, ...] = ()
    past_span: tuple[NotNegative, NotNegative] | None = None
    physics: PhysicsContent | None = None

    def __post_init__(self) -> None:
        nu, ny = len(self.input_names), len(self.output_names)
        check_labels("input", nu, names=self.input_names, units=self.input_units)
        check_labels("output", ny, names=self.output_names, units=self.output_units)
        check_unique((*self.input_names, *self.output_names))
        if len(self.delays) not in (0, nu):
            raise ValueError(f"`delays` must have one number per input; got {len(self.delays)} for {nu} inputs")


class EnsembleContent(Strict, frozen=True):
    """All that a file says of an ensemble."""

    members: Annotated[tuple[ModelContent, ...], Meta(min_length=1, max_length=1000)]
    scores: tuple[float | None, ...]
    provenance: Any = None


def read_parts(content: ModelContent) -> tuple[Structure, Integration]:
    """What the model is made of, with nothing left to data, and how it is integrated."""
    structure = as_schema(as_settings(content.structure), Structure)
    integration = as_schema(as_settings(content.integration), Integration)
    if AUTO in (structure.nx, structure.network, structure.activation):
        raise SchemaError("`structure` must leave nothing to the data; its nx, network or activation is 'auto'")
    sees_time = structure.initial_state == "encoder" and structure.clock == "irregular"
    if sees_time and max(structure.na, structure.nb) and content.past_span is None:
        raise SchemaError("`past_span` must be given for an encoder that sees time stamps; it is not")
    limits, ny = structure.output_limits, len(content.output_names)
    if not isinstance(limits, str) and (len(limits) != ny or not all(isinstance(pair, tuple) for pair in limits)):
        raise SchemaError(f"`output_limits` must be one pair for each of {ny} outputs; got {limits!r}")
    try:
        hold_slopes(integration.hold, len(content.input_names))
        make_integrator(integration, content.ts)
    except ConfigError as error:
        raise SchemaError(str(error)) from None
    return structure, integration


class _Folds(msgspec.Struct):
    steps: Sequence[Count]
    scores: Sequence[Sequence[float]]
    pooled: Sequence[float]
    chosen: Count


class _Trust(msgspec.Struct):
    held_out: float | None = None
    linear: float | None = None
    members: Count = 1
    distance: float | None = None
    doubt: float | None = None


class _Member(msgspec.Struct):
    seed: int | None
    error: float | None
    status: str
    kept: bool


class _Provenance(msgspec.Struct):
    """Where a model came from, as far as the package reads it; further names may be there, too."""

    status: str = ""
    recipe: dict[str, Any] | None = None
    seed: int | None = None
    steps: Count = 0
    best_step: Count = 0
    versions: dict[str, str] = {}
    train: Sequence[str] = ()
    validation: Sequence[str] = ()
    preparation: dict[str, Sequence[str]] = {}
    data: str = ""
    folds: _Folds | None = None
    trust: _Trust | None = None
    members: Sequence[_Member] = ()


def read_provenance(found: Any) -> Mapping[str, Any]:
    """Where a model came from; of something else only why it was dropped, as a model is good without it."""
    try:
        as_schema(found, _Provenance)
    except SchemaError as error:
        return {DROPPED: f"it was not as `tausid fit` writes it: {error}"}
    return found
