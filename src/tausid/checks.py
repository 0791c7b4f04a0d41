"""Rules for the values of settings, with one wording for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real

from tausid.errors import ConfigError, unknown_name

LARGEST = 2**31 - 1  # of whole numbers, seeds among them


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Check that a setting is one of some words."""
    choices = tuple(known)
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(unknown_name(name, value, choices))


def check_whole(name: str, value: object, least: int, most: int = LARGEST) -> None:
    """Check that a setting is a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        limit = f" and at most {most}" if isinstance(value, Integral) and int(value) > most else ""
        raise ConfigError(
            f"`{name}` must be a whole number of at least {least}{limit}; got {shortened(value)}. Correct it."
        )


def check_number(name: str, value: object, *, positive: bool = False) -> None:
    """Check that a setting is a finite number, zero or positive, or only positive."""
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (positive and value == 0):  # type: ignore[operator]
        rule = "positive" if positive else "zero or positive"
        raise ConfigError(f"`{name}` must be a {rule} number; got {value!r}. Correct it.")


def check_flag(name: str, value: object) -> None:
    """Check that a setting is true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"`{name}` must be true or false; got {value!r}. Choose one.")


def shortened(value: object, most: int = 80) -> str:
    """What was received, as far as a sentence can hold it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists without end
        return f"a very long {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."
