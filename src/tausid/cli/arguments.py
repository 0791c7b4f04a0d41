"""Commands from functions: their signatures say what the command line takes.

The parser is Python's own, made for the one command that was typed: libraries that do this take longer to import than
a simulation.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tausid.errors import unknown_name

Function = TypeVar("Function", bound=Callable[..., None])


class Argument:
    """What a command must be given, without a name before it; a parameter that may be a list takes several.

    Args:
        metavar: what it is called in the help.
        help: one line for it.
    """

    def __init__(self, *, metavar: str, help: str) -> None:
        self.metavar, self.help = metavar, help


class Option:
    """What a command may be given by name; a parameter that may be a list can be repeated.

    Args:
        name: `--name`, if that is not the parameter's own.
        help: one line for it.
        least: smallest number that it may be.
        check: raises an error of tausid's for a value that breaks a rule.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        help: str,
        least: int | None = None,
        check: Callable[[Any], None] | None = None,
    ) -> None:
        self.name, self.help, self.least, self.check = name, help, least, check


class Commands:
    """Commands, and groups of them, by name.

    Args:
        help: what they are for.
        version: what `--version` says; only of the program as a whole.
    """

    def __init__(self, help: str, version: str | None = None) -> None:
        self.help, self.version = help, version
        self.known: dict[str, Callable[..., None] | Commands] = {}

    def command(self, name: str) -> Callable[[Function], Function]:
        """Make a function a command."""

        def add(function: Function) -> Function:
            self.known[name] = function
            return function

        return add

    def add(self, name: str, commands: Commands) -> None:
        """Make other commands a group of these."""
        self.known[name] = commands

    def run(self, words: Sequence[str], program: str = "tausid") -> None:
        """Do what was typed; ends the program with code 2 where it cannot be understood."""
        function, values = self.parse(words, program)
        function(**values)

    def parse(self, words: Sequence[str], program: str = "tausid") -> tuple[Callable[..., None], dict[str, Any]]:
        """The command that was typed, and what it was given."""
        first = words[0] if words else "--help"
        if first in ("-h", "--help"):
            print(self._describe(program))
            raise SystemExit(0)
        if first == "--version" and self.version is not None:
            print(self.version)
            raise SystemExit(0)
        if first not in self.known:
            print(f"error: {unknown_name('command', first, self.known)}", file=sys.stderr)
            raise SystemExit(2)
        found, program = self.known[first], f"{program} {first}"
        if isinstance(found, Commands):
            return found.parse(words[1:], program)
        values = vars(make_parser(found, program).parse_intermixed_args(list(words[1:])))
        _check_values(found, values)
        return found, values

    def _describe(self, program: str) -> str:
        width = max(map(len, self.known))
        lines = [f"usage: {program} COMMAND ...", "", self.help, "", "commands:"]
        for name, found in self.known.items():
            about = found.help if isinstance(found, Commands) else inspect.getdoc(found) or ""
            lines.append(f"  {name:<{width}}  {about.splitlines()[0]}")
        also = f"{program} --version says the version; " if self.version else ""
        return "\n".join([*lines, "", f"{also}{program} COMMAND --help says more."])


def make_parser(function: Callable[..., None], program: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    parser = argparse.ArgumentParser(prog=program, description=inspect.getdoc(function), allow_abbrev=False)
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, about = get_args(hints[name])
        several, one = _unwrap(kind)
        if isinstance(about, Argument):
            count = "+" if several else None if parameter.default is parameter.empty else "?"
            parser.add_argument(name, metavar=about.metavar, help=_escape(about.help), type=one, nargs=count)
        else:
            _add_option(parser, name, about, one, several, parameter.default)
    return parser


def _check_values(function: Callable[..., None], values: dict[str, Any]) -> None:
    for name, hint in get_type_hints(function, include_extras=True).items():
        about = get_args(hint)[-1] if name in values else None
        if isinstance(about, Option) and about.check is not None and values[name] is not None:
            about.check(values[name])


def _add_option(
    parser: argparse.ArgumentParser, name: str, about: Option, kind: type, several: bool, default: Any
) -> None:
    """A flag, one value or several."""
    required = default is inspect.Parameter.empty
    shown = "" if required or not default or kind is bool else f" By default {default}."
    settings: dict[str, Any] = {"dest": name, "help": _escape(about.help + shown), "default": default}
    if kind is bool:
        settings["action"] = argparse.BooleanOptionalAction if default else "store_true"
    else:
        settings |= {
            "type": _number(kind, about.least),
            "required": required,
            "action": "append" if several else "store",
        }
        settings["metavar"] = kind.__name__.upper() if kind is not str else "TEXT"
    parser.add_argument(about.name or "--" + name.replace("_", "-"), **settings)


def _number(kind: type, least: int | None) -> Callable[[str], Any]:
    if least is None:
        return kind

    def convert(text: str) -> Any:
        value = kind(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}; got {value}")
        return value

    convert.__name__ = kind.__name__  # for argparse's message where it is no number
    return convert


def _unwrap(kind: Any) -> tuple[bool, type]:
    """Whether there may be several values, and what each is."""
    inner = [part for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) is list:
        return True, inner[0]
    return _unwrap(inner[0]) if len(inner) == 1 else (False, kind)


def _escape(text: str) -> str:
    return text.replace("%", "%%")
