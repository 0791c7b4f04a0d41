"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tausid.checks import shortened
from tausid.cli.arguments import Argument, Option
from tausid.errors import ConfigError

if TYPE_CHECKING:
    from tausid.data.sources import Columns
    from tausid.model.tau import Tau


def _check_picture(path: Path) -> None:
    """Refuse a wrong ending before anything is computed."""
    from tausid.results.plots import check_picture

    check_picture(path)


Data = Annotated[
    list[str],
    Argument(
        metavar="DATA",
        help="CSV, Excel, MATLAB, Parquet, HDF5 or numpy files, folders of them, or @NAME of a known dataset.",
    ),
]
OneFile = Annotated[
    str,
    Argument(metavar="DATA", help="A CSV, Excel, MATLAB, Parquet, HDF5 or numpy file, or @NAME of a known dataset."),
]
ModelFile = Annotated[Path, Argument(metavar="MODEL", help="A model file, or the folder of a run.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Skip = Annotated[
    int | None, Option("--skip", least=0, help="Leading samples that are not scored; max(na, nb) by default.")
]
X0 = Annotated[
    str | None,
    Option("--x0", help="Initial state: encoder, refine, rest, a state 0.1,-0.2, or outputs at rest level=2."),
]
After = Annotated[str | None, Option("--after", help="A data file: begin in the state at its end.")]
Part = Annotated[str | None, Option("--part", help="Part of a known dataset: train, or test (default).")]
Picture = Annotated[Path, Option("--out", check=_check_picture, help="Picture: .png, .svg or .pdf.")]
PlotOption = Annotated[
    Path | None, Option("--plot", check=_check_picture, help="Also draw a picture: .png, .svg or .pdf.")
]

# How a file is read: options of every command that reads one.
FILE_OPTIONS: dict[str, Any] = {
    "input": Annotated[list[str] | None, Option("--input", help="Input column; repeat for several.")],
    "output": Annotated[list[str] | None, Option("--output", help="Output column; repeat for several.")],
    "ts": Annotated[float | None, Option("--ts", help="Sampling time in seconds.")],
    "time": Annotated[str | None, Option("--time", help="Time column: seconds, since 1970, or dates; not with --ts.")],
    "time_format": Annotated[
        str | None, Option("--time-format", help="How dates are written, such as %d.%m.%Y %H:%M:%S.")
    ],
    "unit": Annotated[list[str] | None, Option("--unit", help="Unit of a channel, NAME=UNIT; all or none.")],
    "fill": Annotated[str | None, Option("--fill", help="Fill missing inputs: hold or linear.")],
    "prepare": Annotated[
        list[str] | None,
        Option("--prepare", help='A step such as "decimate 10" or "trim 0 20"; repeat for several, in order.'),
    ],
}
HAVE_OPTIONS = (
    "nx", "seed", "physics", "ensemble", "keep", "workers", "recipe", "protocol", "tau", "out", "resume", "overwrite",
    "test", "validation",
)  # fmt: skip


def reads_files(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in the place of its argument `columns`, the options that say how a file is read."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        described = [given.pop(name) for name in FILE_OPTIONS]
        command(columns=_columns(*described), **given)

    asked = inspect.signature(command, eval_str=True, locals={"Columns": object})
    parameters: list[inspect.Parameter] = []
    for name, parameter in asked.parameters.items():
        given = FILE_OPTIONS if name == "columns" else {name: parameter.annotation}
        default = None if name == "columns" else parameter.default
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters += [inspect.Parameter(n, kind, default=default, annotation=a) for n, a in given.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _columns(
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    ts: float | None,
    time: str | None,
    time_format: str | None,
    units: Sequence[str] | None,
    fill: str | None,
    prepare: Sequence[str] | None,
) -> Columns:
    from tausid.data.sources import Columns

    named = dict(split_pair(pair, "--unit", "pump=V") for pair in units) if units else None
    return Columns(inputs, outputs, ts, time, named, fill, prepare, time_format)


def parse_tau(text: str, *, trainable: bool) -> float | list[float] | str | Tau:
    """Tau from the command line: the name of an estimator, seconds, or one per state separated by commas."""
    if text[:1].isalpha():
        return f"{text}-trained" if trainable else text
    from tausid.model.tau import Tau

    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"`--tau` must be bla, spectrum, trained, or seconds, one number or one per state separated by commas; "
            f"got {text!r}. Leave it out to have it estimated."
        ) from None
    seconds = values[0] if len(values) == 1 else values
    return Tau(seconds, trainable=True) if trainable else seconds


def parse_delays(text: str) -> list[float] | float | str | None:
    """Delays from the command line: `auto`, `none`, seconds, or one per input separated by commas."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"`--delays` must be auto, none, or seconds, one number or one per input separated by commas; got {text!r}."
        ) from None
    return values[0] if len(values) == 1 else values


def parse_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Settings given as KEY=VALUE: numbers and lists where they read as JSON, text otherwise."""
    settings: dict[str, Any] = {}
    for pair in pairs or ():
        key, value = split_pair(pair, "--set", "trainer.iterations=60")
        if key in HAVE_OPTIONS:
            raise ConfigError(f"`--set` is for settings of the recipe; {key!r} has an option. Use --{key}.")
        settings[key] = _value(value)
    return settings


def parse_shortcuts(given: Mapping[str, int | str | None]) -> dict[str, Any]:
    """Settings that have an option of their own, by key; None where nothing was given."""
    found: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if "structure.hidden" in found:
        found["structure.hidden"] = _value(f"[{found['structure.hidden'].strip('[]')}]")
    return found


def _value(text: str) -> Any:
    from tausid.schema import DEEPEST, SchemaError, check_depth

    try:
        found = json.loads(text)
        check_depth(found)
        return found
    except json.JSONDecodeError:
        return text
    except (ValueError, RecursionError, SchemaError):
        raise ConfigError(
            f"a value must be at most {DEEPEST} lists deep, and a number have at most {sys.get_int_max_str_digits()} "
            f"digits; got {shortened(text)}. Correct it."
        ) from None


def split_pair(pair: str, option: str, example: str) -> tuple[str, str]:
    """Both sides of KEY=VALUE."""
    key, equals, value = pair.partition("=")
    if not equals:
        raise ConfigError(f"`{option}` must be KEY=VALUE; got {pair!r}. Write, for instance, {option} {example}.")
    return key, value
