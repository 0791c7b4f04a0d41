"""scikit-build-core, which is asked to fetch jaxlib for a build only where the interpreter has none.

A fixed requirement would unpack a second JAX beside the installed one for every build, and could be a newer one, whose
headers make a library that the installed one refuses.
"""

from __future__ import annotations

from typing import Any

from scikit_build_core import build
from scikit_build_core.build import build_editable, build_sdist, build_wheel, get_requires_for_build_sdist
from xla_headers import find_headers

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def _jaxlib() -> list[str]:
    return [] if find_headers() else ["jaxlib>=0.8"]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What a wheel is built with.

    Args:
        config_settings: options of the front end.

    Returns:
        Requirements beside those in pyproject.toml.
    """
    return [*build.get_requires_for_build_wheel(config_settings), *_jaxlib()]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What an editable installation is built with.

    Args:
        config_settings: options of the front end.

    Returns:
        Requirements beside those in pyproject.toml.
    """
    return [*build.get_requires_for_build_editable(config_settings), *_jaxlib()]
