"""What can go wrong, as few classes as callers need to tell apart.

Every message says four things: the name of what is wrong, the rule, what was received, and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TausidError(Exception):
    """Base of all errors that tausid raises on purpose."""


class DataError(TausidError, ValueError):
    """Measured data break a rule: a missing column, a time that runs backwards, a constant channel."""


class ConfigError(TausidError, ValueError):
    """A setting breaks a rule: an unknown recipe, a negative tau, a horizon longer than the record."""


class StorageError(TausidError, RuntimeError):
    """A file cannot be read or written as what it should be: truncated, foreign, too new, no permission."""


class ExecutorError(TausidError, RuntimeError):
    """What computes the runs of a study is gone: a scheduler that no longer answers, calls that were cancelled."""


class DivergenceError(TausidError, RuntimeError):
    """A simulation or a training diverged: NaN or infinity came out."""


class MissingExtraError(TausidError, ImportError):
    """An optional dependency is needed for what was asked and is not installed."""


def unknown_name(kind: str, received: object, known: Iterable[str]) -> str:
    """Message for a name that is not in a list, with the nearest one that is.

    Args:
        kind: what the name stands for, such as `recipe`.
        received: what was given.
        known: the names that exist.

    Returns:
        The message, ready to be raised.

    Example:
        >>> unknown_name("stepper", "rk5", ["euler", "rk4"])
        "unknown stepper 'rk5'; known: euler, rk4. Did you mean 'rk4'?"
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(received), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else " Choose one of these."
    return f"unknown {kind} {received!r}; known: {', '.join(names)}.{hint}"
