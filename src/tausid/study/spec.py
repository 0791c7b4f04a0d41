"""What a study runs: a TOML file that names data, settings and axes, spelled out as a list of runs."""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tausid.checks import check_whole
from tausid.data.records import Records
from tausid.errors import ConfigError, unknown_name
from tausid.model.physics import find_physics
from tausid.study.study_data import DataSource, RecordSource, sources_from_spec
from tausid.training.ensemble import check_ensemble
from tausid.training.fitting import change_recipe
from tausid.training.recipe import Recipe
from tausid.training.settings import setting_names
from tausid.training.start import TAU_NAMES

TABLES = ("data", "settings", "axes", "variants")
# What a run may be told beside settings of its recipe.
ARGUMENTS = (
    "recipe",
    "protocol",
    "seed",
    "nx",
    "tau",
    "ts_over_tau",
    "physics",
    "ensemble",
    "keep",
    "workers",
    "window",
)
RUN_KEYS = (*ARGUMENTS, *setting_names())
PARTS_OF_RECIPES = {key.rpartition(".")[0] for key in RUN_KEYS if "." in key}  # what is in front of the last dot
# Ranges of numpy. Fifteen digits: 0.1 and not 0.10000000000000002 in tables and names of folders.
RANGES: dict[str, Callable[..., list[Any]]] = {
    "range": lambda *numbers: list(range(*numbers)),
    "linspace": lambda *numbers: [float(f"{value:.15g}") for value in np.linspace(*numbers).tolist()],
    "geomspace": lambda *numbers: [float(f"{value:.15g}") for value in np.geomspace(*numbers).tolist()],
}
LONGEST_NAME = 100
MOST_RUNS = 100_000


@dataclass(frozen=True)
class RunPlan:
    """One training of a study.

    Args:
        name: what tells it from the study's other runs; also its folder's name.
        labels: its variant, its data where the study has several, and its values on the axes.
        choices: all that `fit` is told: recipe, protocol, seed, `tau` or `ts_over_tau`, settings of the recipe; and how
            test records are scored.
        source: where its records come from.
    """

    name: str
    labels: Mapping[str, Any]
    choices: Mapping[str, Any]
    source: DataSource | RecordSource


@dataclass(frozen=True)
class StudySpec:
    """A study: data, what is the same in all runs, and what differs.

    The runs are the product of all axes, for each variant and each of the data.

    Args:
        sources: where the records come from, by what the data are called.
        settings: choices that all runs share.
        axes: values by key.
        variants: choices made together, by the variant's name; may be empty.
    """

    sources: Mapping[str, DataSource | RecordSource]
    settings: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    variants: Mapping[str, Mapping[str, Any]]

    def runs(self) -> tuple[RunPlan, ...]:
        """All runs, checked, variant by variant, the last axis fastest.

        Raises:
            ConfigError: a run's choices break a rule, two runs have the same name, or a run has no seed.
        """
        return self._runs

    @functools.cached_property
    def _runs(self) -> tuple[RunPlan, ...]:
        _check_count("a study", math.prod(map(len, (self.variants or {"": {}}, self.sources, *self.axes.values()))))
        found = tuple(self._spell_out())
        _check_names(found)
        return found

    def _spell_out(self) -> Iterator[RunPlan]:
        for variant, data in itertools.product(self.variants or {"": {}}, self.sources):
            several = {"data": data} if len(self.sources) > 1 else {}
            for values in itertools.product(*self.axes.values()):
                point = dict(zip(self.axes, values, strict=True))
                labels = {**({"variant": variant} if variant else {}), **several, **point}
                choices = {**self.settings, **self.variants.get(variant, {}), **point}
                check_choices(choices)
                yield RunPlan(run_name(labels), labels, choices, self.sources[data])


def read_spec(path: str | os.PathLike[str]) -> StudySpec:
    """Read a study from a TOML file.

    Args:
        path: the file; paths of data in it are relative to its folder.

    Raises:
        ConfigError: no such file, not TOML, an unknown key (the nearest known one is named), or a value that breaks
            its rule.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the spec of a study must be a readable file; {path}: {error.strerror}. Check it.") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists in lists without end
        raise ConfigError(f"the spec of a study must be TOML; {path} is not: {error}. Correct it.") from None
    return parse_spec(content, folder=path.parent)


def parse_spec(content: Mapping[str, Any], *, folder: Path) -> StudySpec:
    """A study from what a TOML file holds.

    Args:
        content: the file's keys and values.
        folder: where relative paths start.

    Raises:
        ConfigError: an unknown key, or a value that breaks its rule.

    Example:
        >>> content = {"data": "@cascaded_tanks", "axes": {"tau": ["bla", "trained"], "seed": {"range": [0, 3]}}}
        >>> len(parse_spec(content, folder=Path()).runs())
        6
    """
    _check_keys("key of a study", content, TABLES)
    if "data" not in content:
        raise ConfigError('a study must name its data; got none. Add data = "@cascaded_tanks", or a table [data].')
    spec = StudySpec(
        sources=sources_from_spec(content["data"], folder),
        settings=_flat(_table(content, "settings")),
        axes={key: axis_values(key, value) for key, value in _flat(_table(content, "axes")).items()},
        variants={label: _flat(_table(_table(content, "variants"), label)) for label in _table(content, "variants")},
    )
    for table in (spec.settings, spec.axes, *spec.variants.values()):
        _check_keys("setting of a study", table, RUN_KEYS)
    _check_once(spec)
    spec.runs()
    return spec


def axis_values(key: str, value: Any) -> tuple[Any, ...]:
    """The values of an axis: a list, or `range`, `linspace` or `geomspace` as in numpy, `and` further ones.

    Example:
        >>> axis_values("ts_over_tau", {"geomspace": [0.01, 1.0, 3], "and": [4.0]})
        (0.01, 0.1, 1.0, 4.0)
    """
    if isinstance(value, list) and value:
        return tuple(value)
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"axis `{key}` must be a list of values, or a range of them; got {value!r}. Write [0, 1, 2].")
    _check_keys(f"kind of range for axis `{key}`", value, (*RANGES, "and"))
    found = tuple(one for kind, given in value.items() for one in _range_values(key, kind, given))
    if not found:
        raise ConfigError(
            f"axis `{key}` must have at least one value; {value!r} has none. Write {{ range = [0, 20] }}."
        )
    return found


def _range_values(key: str, kind: str, given: Any) -> list[Any]:
    if not isinstance(given, list):
        example = "[4.0]" if kind == "and" else "[0, 20]" if kind == "range" else "[0.1, 10.0, 5]"
        raise ConfigError(f"axis `{key}`: {kind} = {given!r} must be a list. Write {kind} = {example}.")
    try:
        if kind != "and":
            _check_count(f"axis `{key}`", len(range(*given)) if kind == "range" else given[2] if given[2:] else 0)
        return given if kind == "and" else RANGES[kind](*given)
    except ConfigError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"axis `{key}`: {kind} = {given!r} must be as in numpy; {error}. Correct it.") from None


def _check_count(what: str, runs: float) -> None:
    if runs > MOST_RUNS:
        raise ConfigError(f"{what} must have at most {MOST_RUNS} runs; got {runs}. Take fewer values.")


def check_choices(choices: Mapping[str, Any]) -> None:
    """Check what one run is told, before hours go into the others."""
    if "seed" not in choices:
        raise ConfigError("a study must have seeds; got none. Add seed = { range = [0, 20] } to [axes].")
    if "tau" in choices and "ts_over_tau" in choices:
        raise ConfigError("a run must have one tau; got `tau` and `ts_over_tau`. Leave one out.")
    tau, ratio = choices.get("tau", "bla"), choices.get("ts_over_tau", 1.0)
    if isinstance(tau, str) and tau not in TAU_NAMES:
        raise ConfigError(unknown_name("tau", tau, TAU_NAMES) + " Or give seconds.")
    for name, value in {"ts_over_tau": ratio, **({} if isinstance(tau, str) else {"tau": tau})}.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(_is_number(v) and 0 < v < float("inf") for v in values):
            raise ConfigError(f"`{name}` must be a positive number, or one per state; got {value!r}. Correct it.")
    check_whole("seed", choices["seed"], 0)
    if "window" in choices:
        check_whole("window", choices["window"], 1)
    recipe_of(choices)
    if "physics" in choices:
        find_physics(choices["physics"])
    numbers = (choices.get(name) for name in ("ensemble", "keep", "workers"))
    check_ensemble(*numbers, validated=True)  # whether it is, the records say


def settings_of(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Those choices of a run that are settings of its recipe."""
    return {key: value for key, value in choices.items() if key not in ARGUMENTS}


def recipe_of(choices: Mapping[str, Any], records: Records | None = None) -> Recipe:
    """The recipe of a run, checked as far as it can be without its records."""
    named = {key: choices[key] for key in ("physics", "nx", "protocol") if key in choices}
    return change_recipe(choices.get("recipe", "default"), records, settings=settings_of(choices), **named)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def run_name(labels: Mapping[str, Any]) -> str:
    """A name from a run's labels that is fit for a folder.

    Example:
        >>> run_name({"variant": "A = -I", "seed": 3})
        'A_-I,seed=3'
    """
    return _full_name(labels)[:LONGEST_NAME]


def _full_name(labels: Mapping[str, Any]) -> str:
    parts = [str(v) if key == "variant" else f"{key}={v}" for key, v in labels.items()]
    name = ",".join(re.sub(r"[^\w.+=-]+", "_", part.replace(" = ", "_")) for part in parts)
    if not name.strip("."):  # the folder of all runs, or the one above it
        return name.replace(".", "_") or "run"
    return name


def _check_names(runs: Sequence[RunPlan]) -> None:
    """Every run has its own name, which is all that a resumed study knows it by."""
    if not runs:
        raise ConfigError(
            "a study must have at least one run; an axis without values leaves none. Add values, or remove the axis."
        )
    name, count = Counter(run.name for run in runs).most_common(1)[0]
    if count == 1:
        return
    first, second, *_ = (run.labels for run in runs if run.name == name)
    if first == second:
        raise ConfigError(f"runs of a study must differ; {name!r} comes twice. Remove one of the values.")
    if _full_name(first) != _full_name(second):
        raise ConfigError(
            f"runs of a study must differ in the first {LONGEST_NAME} characters of their names; {dict(first)} and "
            f"{dict(second)} do not. Give the variants shorter names."
        )
    raise ConfigError(
        f"runs of a study must differ in letters and digits; {dict(first)} and {dict(second)} are both {name!r}. "
        "Rename one variant."
    )


def _check_keys(kind: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(unknown_name(kind, key, known))


def _check_once(spec: StudySpec) -> None:
    for key in spec.axes:
        held = "settings" if key in spec.settings else next((v for v, t in spec.variants.items() if key in t), None)
        if held is not None:
            raise ConfigError(f"`{key}` must be set once; it is an axis and in {held!r} as well. Remove one.")


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Tables in a table by dotted keys, as TOML writes them: `trainer.iterations`; a range of an axis stays a table."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{above}{name}"
        nested = isinstance(value, dict) and (key in PARTS_OF_RECIPES or key not in RUN_KEYS)
        flat |= _flat(value, f"{key}.") if nested else {key: value}
    return flat


def _table(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError(f"`{key}` must be a table; got {value!r}. Write it as [{key}] with one key per line.")
    return value
