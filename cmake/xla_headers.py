"""Where XLA's headers lie, which are part of jaxlib and all that the fused engine needs of it."""

from __future__ import annotations

import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path


def find_headers() -> Path | None:
    """The headers of the JAX that can be imported, or else of the one that the interpreter has installed.

    pip builds in an environment of its own, in which the second cannot be imported, but its files are there to read.

    Returns:
        The folder to include from, or None where there is no JAX.
    """
    spec = find_spec("jaxlib")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    folders.append(Path(sysconfig.get_path("platlib")) / "jaxlib")
    found = (folder / "include" for folder in folders)
    return next((folder for folder in found if (folder / "xla/ffi/api/ffi.h").is_file()), None)


if __name__ == "__main__":
    headers = find_headers()
    if headers is None:
        sys.exit("jaxlib is not installed")
    print(headers)
