"""Nested structures of arrays, as MATLAB and HDF5 files hold them -> a table; structs that look like iddata are known.

A tree is a mapping from names to `Leaf` (numbers), text, lists and further mappings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tausid.data.readers._tables import Column, Table, as_numbers
from tausid.errors import DataError
from tausid.shapes import Float

# Deeper nesting than any measurement has; a cycle would go on forever.
DEEPEST = 16
# Fields that a struct like MATLAB's iddata may have, in lower case, by what they mean.
FIELDS = {
    "u": ("u", "inputdata", "input"),
    "y": ("y", "outputdata", "output"),
    "ts": ("ts", "sampletime", "samplingtime"),
    "time": ("samplinginstants", "t", "time"),
    "input_names": ("inputname", "inputnames", "uname"),
    "output_names": ("outputname", "outputnames", "yname"),
    "input_units": ("inputunit", "inputunits", "uunit"),
    "output_units": ("outputunit", "outputunits", "yunit"),
}


@dataclass(frozen=True)
class Leaf:
    """An array of a file, read when it is asked for."""

    shape: tuple[int, ...]  # its shape, time first
    load: Callable[[], Any]  # gives it
    unit: str = ""  # its unit, if the file says it
    refused: str = ""  # why it cannot be a channel, as the end of a sentence; empty if it can


def table_from_tree(tree: Mapping[str, Any], *, source: str, name: str, joint: str) -> Table:
    """The channels of a tree, by their full names."""
    columns: list[Column] = []
    groups: dict[str, tuple[int, ...]] = {}
    known = []
    for path, struct in _structs(tree, "", joint, DEEPEST):
        roles = _roles(struct)
        positions: dict[str, tuple[int, ...]] = {}
        for key, leaf in _leaves(struct):
            full = f"{path}{joint}{key}" if path else key
            made = _columns_of(leaf, source, full, key, *_names_of(roles, struct, key))
            positions[key] = tuple(range(len(columns), len(columns) + len(made)))
            columns += made
            if len(made) > 1:
                groups[full] = positions[key]
        if "u" in roles or "y" in roles:
            known.append((struct, roles, positions))
    table = Table(source, name, tuple(columns), groups=groups)
    return _with_roles(table, *known[0]) if len(known) == 1 else table


def _structs(tree: Mapping[str, Any], path: str, joint: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tree and all structs in it with their paths, outer ones first."""
    yield path, tree
    for key, value in tree.items():
        for name, inner in _numbered(str(key), value):
            if isinstance(inner, Mapping) and depth > 0:
                yield from _structs(inner, f"{path}{joint}{name}" if path else name, joint, depth - 1)


def _leaves(struct: Mapping[str, Any]) -> Iterator[tuple[str, Leaf]]:
    for key, value in struct.items():
        for name, inner in _numbered(str(key), value):
            if isinstance(inner, Leaf):
                yield name, inner


def _numbered(key: str, value: Any) -> list[tuple[str, Any]]:
    """A value by its name, or those of a cell array by theirs: `u{1}`, `u{2}`."""
    if isinstance(value, list):
        return [(f"{key}{{{i + 1}}}", item) for i, item in enumerate(value)]
    return [(key, value)]


def _columns_of(leaf: Leaf, source: str, full: str, key: str, names: list[str], units: list[str]) -> list[Column]:
    """A leaf as columns: one for a vector, one per column of a matrix."""
    refusal = _refusal(leaf)
    n = 1 if refusal or len(leaf.shape) < 2 else leaf.shape[1]
    load = functools.cache(leaf.load)
    prefix = full.removesuffix(key)
    made = []
    for i in range(n):
        label = names[i] if len(names) == n else (key if n == 1 else f"{key}{i + 1}")
        unit = units[i] if len(units) == n else leaf.unit
        called = f"channel {prefix + label!r} of {source}"
        read = functools.partial(_read, load, None if n == 1 else i, called, refusal)
        made.append(Column(prefix + label, read, label=label, unit=unit))
    return made


def _refusal(leaf: Leaf) -> str:
    if leaf.refused:
        return leaf.refused
    if len(leaf.shape) > 2:
        return f"be a vector or a matrix; got shape {leaf.shape}. Split a batch of experiments into several files."
    if len(leaf.shape) == 2 and leaf.shape[1] > leaf.shape[0] > 1:
        return (
            f"have one sample per row; got {leaf.shape[0]} rows and {leaf.shape[1]} columns. "
            "Transpose it before it is saved."
        )
    return "" if all(leaf.shape) else "hold samples; it is empty. Choose another one."


def _read(load: Callable[[], Any], column: int | None, called: str, refusal: str) -> Float[np.ndarray, " N"]:
    if refusal:
        raise DataError(f"{called} must {refusal}")
    values = np.asarray(load())
    return as_numbers(np.ravel(values) if column is None else values[:, column], called)


def _roles(struct: Mapping[str, Any]) -> dict[str, str]:
    """Which field of a struct means what, if it looks like iddata: outputs, and inputs or a sampling time."""
    by_case = {str(key).lower(): str(key) for key in struct}
    roles = {
        meaning: next(by_case[name] for name in names if name in by_case)
        for meaning, names in FIELDS.items()
        if any(name in by_case for name in names)
    }
    numeric = all(isinstance(struct[roles[role]], Leaf) for role in ("u", "y") if role in roles)
    return roles if numeric and "y" in roles and ("u" in roles or "ts" in roles) else {}


def _names_of(roles: Mapping[str, str], struct: Mapping[str, Any], key: str) -> tuple[list[str], list[str]]:
    """Names and units that a struct gives for the columns of one of its fields."""
    for role, names, units in (("u", "input_names", "input_units"), ("y", "output_names", "output_units")):
        if roles.get(role) == key:
            return _texts(struct.get(roles.get(names, ""))), _texts(struct.get(roles.get(units, "")))
    return [], []


def _texts(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item.strip() for item in items] if all(isinstance(item, str) and item.strip() for item in items) else []


def _with_roles(
    table: Table, struct: Mapping[str, Any], roles: Mapping[str, str], positions: Mapping[str, tuple[int, ...]]
) -> Table:
    time = positions.get(roles.get("time", ""), ())
    clock = time[0] if len(time) == 1 else None
    return replace(
        table,
        inputs=positions.get(roles.get("u", ""), ()),
        outputs=positions[roles["y"]],
        time=clock,
        ts=_sampling_time(struct.get(roles.get("ts", ""))) if clock is None else None,
    )


def _sampling_time(leaf: Any) -> float | None:
    """The number in a field, if it is one that can be a sampling time: iddata writes [] or 0 where it is unknown."""
    if not isinstance(leaf, Leaf) or leaf.refused or np.prod(leaf.shape) != 1:
        return None
    value = as_numbers(np.ravel(leaf.load()), "the sampling time")[0]
    return float(value) if np.isfinite(value) and value > 0 else None
