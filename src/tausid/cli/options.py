"""Options that several commands share, and how they become records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tausid.errors import ConfigError

if TYPE_CHECKING:
    from tausid.data.sources import Columns
    from tausid.model.tau import Tau

Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...", help="CSV, MATLAB, Parquet or HDF5 files, folders of them, or @NAME of a known dataset."
    ),
]
OneFile = Annotated[
    str, typer.Argument(metavar="DATA", help="A CSV, MATLAB, Parquet or HDF5 file, or @NAME of a known dataset.")
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="Input column; repeat for several.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Output column; repeat for several.")]
Ts = Annotated[float | None, typer.Option("--ts", help="Sampling time in seconds.")]
Time = Annotated[str | None, typer.Option("--time", help="Time column in seconds, instead of --ts.")]
Units = Annotated[list[str] | None, typer.Option("--unit", help="Unit of a channel, as NAME=UNIT; all or none.")]
Fill = Annotated[str | None, typer.Option("--fill", help="Missing inputs: hold or linear; else an error.")]
Prepare = Annotated[
    list[str] | None,
    typer.Option("--prepare", help='A step such as "decimate 10" or "trim 0 20"; repeat for several, in order.'),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Skip = Annotated[
    int | None, typer.Option("--skip", min=0, help="Leading samples not to score; max(na, nb) by default.")
]
X0 = Annotated[
    str | None,
    typer.Option("--x0", help="Initial state: encoder, or refine (least squares over the next samples)."),
]
Part = Annotated[
    str | None, typer.Option("--part", help="Which part of a known dataset: train or test; test by default.")
]


HAVE_OPTIONS = (
    "nx",
    "seed",
    "physics",
    "ensemble",
    "keep",
    "workers",
    "recipe",
    "protocol",
    "tau",
    "out",
    "resume",
    "overwrite",
    "test",
    "validation",
)


def read_columns(
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    ts: float | None,
    time: str | None,
    units: Sequence[str] | None = None,
    fill: str | None = None,
    prepare: Sequence[str] | None = None,
) -> Columns:
    """How a file is to be read, from what the options say; units come as NAME=UNIT."""
    from tausid.data.sources import Columns

    named = dict(split_pair(pair, "--unit", "pump=V") for pair in units) if units else None
    return Columns(inputs, outputs, ts, time, named, fill, prepare)


def parse_tau(text: str, *, trainable: bool) -> float | list[float] | str | Tau:
    """Tau from the command line: the name of an estimator, seconds, or one per state separated by commas.

    Args:
        text: what was given.
        trainable: whether it is only the start of a trained tau.

    Returns:
        The name, one number, several, or a `Tau` to be trained.

    Raises:
        ConfigError: not numbers and no name.
    """
    if text[:1].isalpha():
        return f"{text}-trained" if trainable else text
    from tausid.model.tau import Tau

    seconds = _seconds(text)
    return Tau(seconds, trainable=True) if trainable else seconds


def _seconds(text: str) -> float | list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"`--tau` must be bla, spectrum, trained, or seconds, one number or one per state separated by commas; "
            f"got {text!r}. Leave it out to have it estimated."
        ) from None
    return values[0] if len(values) == 1 else values


def parse_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Settings given as KEY=VALUE.

    Args:
        pairs: what was given.

    Returns:
        Values by key: numbers and lists where they read as JSON, text otherwise.

    Raises:
        ConfigError: no `=` in a pair.
    """
    settings: dict[str, Any] = {}
    for pair in pairs or ():
        key, value = split_pair(pair, "--set", "trainer.iterations=60")
        if key in HAVE_OPTIONS:
            raise ConfigError(f"`--set` is for settings of the recipe; {key!r} has an option. Use --{key}.")
        settings[key] = _value(value)
    return settings


def parse_shortcuts(given: Mapping[str, int | str | None]) -> dict[str, Any]:
    """Settings that have an option of their own.

    Args:
        given: what was given by key; None where nothing was.

    Returns:
        Values by key.
    """
    found: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if "structure.hidden" in found:
        found["structure.hidden"] = _value(f"[{found['structure.hidden'].strip('[]')}]")
    return found


def _value(text: str) -> Any:
    """A number or a list where it reads as JSON, text otherwise."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def split_pair(pair: str, option: str, example: str) -> tuple[str, str]:
    """Both sides of KEY=VALUE.

    Args:
        pair: what was given.
        option: the option it was given to.
        example: a right one, for the message.

    Returns:
        Key and value.

    Raises:
        ConfigError: no `=`.
    """
    key, equals, value = pair.partition("=")
    if not equals:
        raise ConfigError(f"`{option}` must be KEY=VALUE; got {pair!r}. Write, for instance, {option} {example}.")
    return key, value
