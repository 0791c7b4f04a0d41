"""A study of small runs: what the coordinator costs beside the runs themselves, and whether memory stays flat.

python benchmarks/study.py --runs 300
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from studies import workers_of
from torture import begin_study, write_small_study

from tausid.study import read_results

WORKERS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        spec = write_small_study(Path(folder), runs)
        began, process = time.monotonic(), begin_study(spec)
        memory: dict[str, list[float]] = {"coordinator": [], "worker": []}
        while process.poll() is None:
            time.sleep(1.0)
            memory["coordinator"].append(megabytes(process.pid))
            memory["worker"] += [megabytes(worker) for worker in workers_of(process)[:1]]
        wall = time.monotonic() - began
        rows = read_results(folder).rows
    own, computing = (sum(float(row[key]) for row in rows) for key in ("seconds", "cpu_seconds"))
    print(f"{len(rows)} runs by {WORKERS} workers in {wall:.0f} s: {len(rows) / wall:.2f} runs/s")
    share = 100 * own / WORKERS / wall
    print(f"the runs' own time: {own:.0f} s, {share:.0f} % of the workers'; {computing:.0f} s of a core")
    for name, values in memory.items():
        third = max(1, len(values) // 3)
        first, last = (statistics.median(part) for part in (values[third : 2 * third] or values, values[-third:]))
        print(f"memory of a {name}: {first:.0f} MB in the middle third, {last:.0f} MB in the last")


def megabytes(process: int) -> float:
    """Resident memory of a process; zero once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS")), 0.0)


if __name__ == "__main__":
    main()
