"""Commands from functions: what their signatures say, and what is said of words that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest

from tausid.cli.arguments import Argument, Commands, Option, make_parser
from tausid.cli.commands import app
from tausid.errors import ConfigError

tools, inner = Commands("Tools.", "1.2"), Commands("Inner tools.")
tools.add("inner", inner)


@inner.command("mix")
def mix(
    first: Annotated[Path, Argument(metavar="FIRST", help="A file.")],
    others: Annotated[list[str], Argument(metavar="OTHER", help="More, 100 % of them.")],
    speed: Annotated[float, Option(help="Turns per second.")],
    label: Annotated[list[str] | None, Option("--name", help="A name; repeat for several.")] = None,
    max_turns: Annotated[int, Option(help="Most turns.", least=1)] = 5,
    dry: Annotated[bool, Option(help="Only say what would be done.")] = False,
    log: Annotated[bool, Option(help="Write a log.")] = True,
) -> None:
    """Mix things."""


def check_even(number: int) -> None:
    if number % 2:
        raise ConfigError(f"`--pairs` must be even; got {number}. Add one.")


@inner.command("deal")
def deal(pairs: Annotated[int | None, Option(help="How many.", check=check_even)] = None) -> None:
    """Deal things."""


def parsed(words: str) -> dict[str, object]:
    function, values = tools.parse(words.split())
    assert function is mix
    return values


def test_words_become_what_the_signature_says():
    assert parsed("inner mix a.csv b --speed 1.5 c") == {
        "first": Path("a.csv"), "others": ["b", "c"], "speed": 1.5, "label": None, "max_turns": 5, "dry": False,
        "log": True,
    }  # fmt: skip
    more = parsed("inner mix a b --name x --speed=-2 --name y --max-turns 1 --dry --no-log")
    assert (more["label"], more["speed"], more["max_turns"]) == (["x", "y"], -2.0, 1)
    assert (more["dry"], more["log"]) == (True, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("iner", "unknown command 'iner'; known: inner. Did you mean 'inner'?"),
        ("inner mixx", "unknown command 'mixx'"),
        ("inner mix a b", "the following arguments are required: --speed"),
        ("inner mix --speed 1", "FIRST"),
        ("inner mix a b --speed fast", "argument --speed: invalid float value: 'fast'"),
        ("inner mix a b --speed 1 --max-turns 0", "argument --max-turns: must be at least 1; got 0"),
        ("inner mix a b --speed 1 --max-turns x", "argument --max-turns: invalid int value: 'x'"),
        ("inner mix a b --speed 1 --max 2", "unrecognized arguments: --max 2"),
    ],
)
def test_words_that_do_not_fit_end_the_program_with_a_message(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        tools.parse(words.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_value_that_breaks_a_rule_of_its_option_raises_what_the_check_says():
    assert [tools.parse(f"inner deal{words}".split())[1]["pairs"] for words in ("", " --pairs 2")] == [None, 2]
    with pytest.raises(ConfigError, match="`--pairs` must be even; got 3"):
        tools.parse(["inner", "deal", "--pairs", "3"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "inner  Inner tools."),
        ("--version", "1.2"),
        ("inner --help", "mix   Mix things."),
        ("inner mix --help", "More, 100 % of them."),
        ("inner mix --help", "By default 5."),
    ],
)
def test_help_and_version_are_printed(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        tools.parse(words.split())
    assert ended.value.code == 0
    assert said in capsys.readouterr().out


def test_every_command_of_the_program_has_a_parser_and_a_description():
    waiting, found = [app], 0
    while waiting:
        for command in waiting.pop().known.values():
            if isinstance(command, Commands):
                waiting.append(command)
            else:
                assert make_parser(command, "").format_help()
                assert command.__doc__
                found += 1
    assert found > 20
