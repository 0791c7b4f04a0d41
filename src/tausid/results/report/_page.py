"""From a folder to a page."""

from __future__ import annotations

import os
from pathlib import Path

from tausid.errors import StorageError
from tausid.results.report._run import run_page
from tausid.results.report._study import study_page
from tausid.results.runs import RunFolder
from tausid.results.study_results import RESULTS, read_results
from tausid.storage import write_text


def write_report(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write one self-contained page on a run or a study.

    Args:
        folder: the folder of a run (`tausid fit`), or of a study, which holds a `results.csv`.
        out: where to write; `report.html` in the folder by default.

    Raises:
        StorageError: the folder is neither, or a file of a run is not what it should be.
        ConfigError: the table of a study cannot be read or has no runs.
    """
    files = RunFolder(folder)
    if (files.path / RESULTS).is_file():
        page = study_page(read_results(folder))
    elif files.is_finished:
        page = run_page(files.read())
    else:
        raise StorageError(
            f"{folder} must be the folder of a run ({files.summary_file.name}) or of a study ({RESULTS}); it holds "
            "neither. Give the folder that `tausid fit` or `tausid study run` wrote to."
        )
    return write_text(files.report_file if out is None else out, page)
