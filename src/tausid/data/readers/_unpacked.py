"""How much may come out of a file: one that claims more is damaged, or made to fill the memory."""

from __future__ import annotations

from pathlib import Path

from tausid.errors import DataError

# What any file may unpack to, in bytes, and how many times its own size one may that is larger than that.
ALWAYS, RATIO = 512_000_000, 200


def most_unpacked(path: Path) -> int:
    """The most bytes that a file may unpack to."""
    return max(ALWAYS, RATIO * path.stat().st_size)


def check_unpacked(path: Path, size: float) -> None:
    """Refuse a file by what it says that it holds, before that is unpacked."""
    if size > most_unpacked(path):
        raise DataError(
            f"file '{path}' must unpack to at most {most_unpacked(path) / 1e6:.0f} MB; it claims "
            f"{size / 1e6:.4g} MB. It may be damaged; unpack it by another program, or export it as CSV."
        )
