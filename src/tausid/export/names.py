"""Names that every target can take, and any text within a comment of one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from tausid.errors import ConfigError
from tausid.export.description import Description
from tausid.model.model import describe_delays

LONGEST = 40  # characters of an identifier; C promises to tell 63 apart


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """ASCII letters, digits and underscores for each name, every one different, and none of those taken.

    Example:
        >>> identifiers(["pump", "2nd pump", "2nd-pump", "µ"], taken=["pump"])
        ('pump_2', '_2nd_pump', '_2nd_pump_2', '_')
    """
    used, found = set(taken), []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:LONGEST]
        plain = plain if re.match(r"[A-Za-z]", plain) else f"_{plain.lstrip('_')}"
        free, number = plain, 1
        while free in used:
            number += 1
            free = f"{plain}_{number}"
        used.add(free)
        found.append(free)
    return tuple(found)


def check_name(name: str) -> None:
    """Check that a model's name can begin the names of functions and files."""
    if not re.fullmatch(rf"[A-Za-z][A-Za-z0-9_]{{0,{LONGEST - 1}}}", name):
        raise ConfigError(
            f"`name` must be a letter, then letters, digits and underscores, at most {LONGEST}; got {name!r}. "
            "Write, for instance, tanks."
        )


def quoted(text: str) -> str:
    """Any text as one line of ASCII in quotes, as in JSON; it cannot end a comment.

    Example:
        >>> print(quoted("µ*/"))
        "\\u00b5*\\/"
    """
    return json.dumps(text).replace("/", "\\/")


def channel_lines(description: Description) -> list[str]:
    """One line a channel, with its place in u or y."""
    d = description
    inputs = mapping(d.input_names, d.input_units, (f"u({i + 1})" for i in range(d.nu)), d.delays)
    return [*inputs, *mapping(d.output_names, d.output_units, (f"y({i + 1})" for i in range(d.ny)))]


def mapping(
    names: Sequence[str], units: Sequence[str], safe: Iterable[str], delays: Iterable[float] | None = None
) -> list[str]:
    """One line a channel: its safe name, the name in the records, the unit, and the delay of an input that has one."""
    rows = zip(safe, names, units, [0.0] * len(names) if delays is None else delays, strict=True)
    return [
        f"{plain}: {quoted(name)}{f' in {quoted(unit)}' if unit else ''}"
        f"{f', as it was {delay:g} s before' if delay else ''}"
        for plain, name, unit, delay in rows
    ]


def delay_note(description: Description, who: str) -> str:
    """A paragraph for a README on late inputs, and who delays them; empty for a model without delays."""
    late = describe_delays(description.delays.tolist(), description.input_names)
    return f"\nInputs act late: {quoted(late)}. {who}\n" if late else ""
