"""Settings by dotted keys, such as `trainer.iterations`: how a part is changed, and parts as plain values."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Any

from tausid.errors import ConfigError, unknown_name
from tausid.model.structure import AUTO, as_plain, as_settings
from tausid.schema import SchemaError, as_schema
from tausid.training.parts import PARTS, USED_BY, Adam, Barrier


def setting_names() -> Iterator[str]:
    """All keys that `Recipe.change` knows."""
    for part, kinds in PARTS.items():
        yield part
        yield from dict.fromkeys(f"{part}.{item.name}" for kind in kinds for item in dataclasses.fields(kind))
    yield from (f"trainer.barrier.{item.name}" for item in dataclasses.fields(Barrier))


def part_of(recipe: Any, part: str) -> Any:
    """A part of a recipe by its name."""
    if part not in PARTS:
        raise ConfigError(_unknown_setting(part))
    return getattr(recipe, part)


def _unknown_setting(key: str) -> str:
    """Names the nearest known setting: of the same last word in any part, or of similar letters."""
    names, last = list(setting_names()), key.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    same += [f"{part}={last}" for part, kinds in PARTS.items() for kind in kinds if getattr(kind, "kind", "") == last]
    similar = difflib.get_close_matches(key, names, n=1) or difflib.get_close_matches(f"trainer.{last}", names, n=1)
    near = " or ".join(map(repr, same or similar))
    hint = f"Did you mean {near}?" if near else f"Its parts are {', '.join(PARTS)}."
    return f"unknown setting {key!r}; settings have names such as trainer.iterations. {hint}"


def as_part(recipe: Any, part: str, value: Any) -> Any:
    """A part from an object, or from its kind in words."""
    held = part_of(recipe, part)
    if not isinstance(value, str) or (part == "holdout" and value == AUTO):
        return value
    if part == "holdout" and value == "none":
        return None
    kinds = {kind.kind: kind for kind in PARTS[part] if hasattr(kind, "kind")}
    if value not in kinds:
        raise ConfigError(unknown_name(part, value, (*kinds, *(("none", AUTO) if part == "holdout" else ()))))
    return held if isinstance(held, kinds[value]) else kinds[value]()


def changed(held: Any, part: str, key: str, value: Any) -> Any:
    """A part with another value of one of its settings."""
    if key.startswith("barrier.") and isinstance(held, Adam):
        barrier = held.barrier or Barrier()
        return dataclasses.replace(held, barrier=changed(barrier, "trainer.barrier", key[8:], value))
    if key == "barrier" and value in ("none", None):
        value = None
    if _has(type(held), key):
        return dataclasses.replace(held, **{key: value})
    for kind in PARTS.get(part, ()):
        if not isinstance(held, kind) and _has(kind, key):
            if part == "holdout":
                return kind(**{key: value})
            raise ConfigError(
                f"`{part}.{key}` is a setting of {kind.__name__}, which {USED_BY[kind]}; this one has "
                f"{type(held).__name__}. Choose such a recipe, or set {part}={kind.kind}."
            )
    raise ConfigError(_unknown_setting(f"{part}.{key}"))


def _has(kind: type[Any], key: str) -> bool:
    names = [item.name for item in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    return key in names or (key.startswith("barrier.") and "barrier" in names)


def part_as_dict(part: Any) -> Any:
    """A part as plain JSON values."""
    if part is None or isinstance(part, str):
        return part
    values = as_plain(part)
    if isinstance(part, Adam) and part.barrier is not None:
        values["barrier"] = as_plain(part.barrier)
    return {"kind": part.kind, **values} if hasattr(part, "kind") else values


def part_from_dict(part: str, values: Any) -> Any:
    """The part back from `part_as_dict`."""
    if values is None or isinstance(values, str):
        return values
    plain = as_schema(values, dict[str, Any])
    settings, kinds = as_settings({key: value for key, value in plain.items() if key != "kind"}), PARTS[part]
    if "kind" not in plain:
        return as_schema(settings, kinds[0])
    kind = next((kind for kind in kinds if kind.kind == plain["kind"]), None)
    if kind is None:
        raise SchemaError(f"`{part}` is of an unknown kind")
    return as_schema(settings, kind)
