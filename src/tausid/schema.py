"""Plain JSON from strangers against a declared schema, by msgspec: types, ranges and names, before any of it is used.

A schema is a `msgspec.Struct`, or a frozen dataclass whose `__post_init__` checks what types cannot say.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from tausid.errors import StorageError

T = TypeVar("T")

DEEPEST = 32  # levels of lists and objects within each other
LARGEST = 1e100  # of physical numbers: squares stay finite

Text = Annotated[str, Meta(max_length=10_000)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
NotNegative = Annotated[float, Meta(ge=0, le=LARGEST)]


class SchemaError(StorageError):
    """What a file holds is not what its schema says; whoever knows the file's name adds it."""


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A base of schemas: other names than the declared ones are refused."""


def parse_json(text: str | bytes) -> Any:
    """Plain values; no name comes twice in an object, and none is nested too deeply."""
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
        check_depth(found)
        return found
    except RecursionError:
        raise SchemaError(_TOO_DEEP) from None
    except ValueError as error:  # that of numbers with thousands of digits, too
        raise SchemaError(f"it is no JSON: {error}") from None


def as_schema(value: Any, schema: type[T]) -> T:
    """Plain values as an object of the schema."""
    if dataclasses.is_dataclass(schema) and isinstance(value, Mapping):
        known = {field.name for field in dataclasses.fields(schema)}
        for name in value:
            if name not in known:
                raise SchemaError(f"Object contains unknown field `{name}`")
    try:
        return msgspec.convert(value, schema)
    except (msgspec.ValidationError, UnicodeError) as error:  # names of fields that are no text
        raise SchemaError(str(error)) from None


_TOO_DEEP = f"its lists and objects must be at most {DEEPEST} levels deep"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in an object")
    return found


def check_depth(value: Any, levels: int = DEEPEST) -> None:
    """Check that lists and objects are not nested so deeply that what goes through them runs out of stack."""
    if isinstance(value, list | dict):
        if not levels:
            raise SchemaError(_TOO_DEEP)
        for item in value.values() if isinstance(value, dict) else value:
            check_depth(item, levels - 1)
