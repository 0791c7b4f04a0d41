"""The user's own folder of records."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tausid.data.datasets._download import NotAvailableError

FOLDER_VARIABLE = "TAUSID_DATA"


def find_in_folder(subfolder: str, files: Iterable[str], folder: str | Path | None) -> tuple[Path, ...]:
    """The paths of files below `folder`, by default the one that the environment variable names."""
    said_by = FOLDER_VARIABLE if folder is None else "`folder`"
    where = os.environ.get(FOLDER_VARIABLE) if folder is None else folder
    if not where:
        raise NotAvailableError(f"{said_by} is not set")
    paths = tuple(Path(where) / subfolder / file for file in files)
    for path in paths:
        try:
            found = path.is_file()
        except OSError as error:
            raise NotAvailableError(f"{said_by} names '{where}', which cannot be read: {error.strerror}") from None
        if not found:
            raise NotAvailableError(f"{said_by} names a folder without the file '{path}'")
    return paths
