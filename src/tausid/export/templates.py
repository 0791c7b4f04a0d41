"""Text from template files: `$$name` is filled in."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any


def fill(path: Path, **values: Any) -> str:
    """The template with its values, and the version of tausid."""
    from tausid import __version__

    return Template(path.read_text("utf-8")).substitute(values, version=__version__)
