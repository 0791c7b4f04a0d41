"""A script of its own: ask the official loader for its files, and print their folder as the last line.

It runs in another process than the caller's because the loader prints to standard output, switches the check
of certificates off for its whole process, and waits without a limit where there is no internet.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(loader: str, files: list[str]) -> None:
    """Print the folder in which the loader keeps a benchmark's files."""
    import nonlinear_benchmarks

    load = getattr(nonlinear_benchmarks, loader)
    folder = _folder(load(data_file_locations=True))
    if not all((folder / name).is_file() for name in files):
        # A download that was cut short leaves a broken archive, which the loader takes for a complete one.
        folder = _folder(load(data_file_locations=True, force_download=True))
    print(f"\n{folder}")


def _folder(locations: str | tuple[str, ...] | list[str]) -> Path:
    first = locations if isinstance(locations, str) else locations[0]
    return Path(first).parent.resolve()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
