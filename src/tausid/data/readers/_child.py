"""`python -m tausid.data.readers._child`: reads MATLAB and HDF5 files for `_isolated.py`, one question at a time."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from tausid.data.readers._hdf5 import table_from_hdf5
from tausid.data.readers._matlab import table_from_mat5
from tausid.data.readers._tables import Table
from tausid.errors import DataError, MissingExtraError


def answer_questions(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer one question per line until there is none."""
    table = Table("nothing", "nothing", ())
    for line in questions:
        question, data = json.loads(line), b""
        answer: dict[str, Any] = {}
        try:
            if question:
                _limit(question["memory"], question["seconds"])
            if "open" in question:
                table = _open(Path(question["open"]), question["kind"])
                answer = _describe(table)
            elif "load" in question:
                data = table.columns[question["load"]].load().tobytes()
                answer = {"bytes": len(data)}
        except DataError as error:
            answer = {"error": str(error)}
        except MemoryError:
            answer = {"too large": True}
        except MissingExtraError as error:
            answer = {"missing": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n" + data)
        answers.flush()


def _limit(memory: int, seconds: float) -> None:
    """Allow this process so much more memory and time of a core than it has taken; more of either is an error."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, resource.RLIM_INFINITY))
    used = resource.getrusage(resource.RUSAGE_SELF)
    ends = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (ends, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _open(path: Path, kind: str) -> Table:
    return table_from_mat5(path) if kind == "mat5" else table_from_hdf5(path, matlab=kind == "mat73")


def _describe(table: Table) -> dict[str, Any]:
    return {
        "columns": [[column.name, column.label, column.unit] for column in table.columns],
        "groups": table.groups,
        "inputs": table.inputs,
        "outputs": table.outputs,
        "ts": table.ts,
        "time": table.time,
    }


if __name__ == "__main__":
    # What libraries print must not get between the answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        answer_questions(sys.stdin.buffer, answers)
