"""`tausid report`: one self-contained page on a run or a study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tausid.cli.arguments import Argument, Option
from tausid.errors import MissingExtraError


def report_command(
    folder: Annotated[Path, Argument(metavar="RUN_OR_STUDY", help="Folder of a run or of a study.")],
    out: Annotated[Path | None, Option(help="Page to write; report.html in the folder by default.")] = None,
) -> None:
    """Write one self-contained page on a run or a study."""
    from tausid.results.report import write_report

    print(write_report(folder, out))


def write_report_if_possible(folder: Path) -> dict[str, Path]:
    """The report of a finished run; without the programs that it needs a note, as the fit itself is whole."""
    from tausid.results.report import write_report

    try:
        return {"report": write_report(folder)}
    except MissingExtraError as missing:
        print(f"note: no report was written: {missing}", file=sys.stderr)
        return {}
