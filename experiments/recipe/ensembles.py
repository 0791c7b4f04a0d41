"""Ensembles of ten from the runs of a finished study: `python ensembles.py cascaded_tanks`, after `tausid study run`.

A member of `fit(..., ensemble=10, seed=0)` is the fit of its seed, so that seeds 0 to 9 of a study are that ensemble.
"""

import csv
import sys
from pathlib import Path

import tausid

SIZE = 10


def main(folder: Path) -> None:
    """Score the ensembles of a study's variant `default`, and write `ensembles.csv`.

    Args:
        folder: the study's folder, with its runs.
    """
    data = tausid.datasets.load("cascaded_tanks")
    with (folder / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("variant", "default") == "default"]
    rows.sort(key=lambda row: int(row["seed"]))
    with (folder / "ensembles.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["first_seed", "members", "test_rmse"])
        for start in range(0, len(rows) - SIZE + 1, SIZE):
            models = [tausid.load_model(folder / "runs" / row["model"]) for row in rows[start : start + SIZE]]
            ensemble = tausid.EnsembleModel(tuple(models), (float("nan"),) * SIZE)
            writer.writerow([rows[start]["seed"], SIZE, tausid.evaluate(ensemble, data.test).total_rmse])


if __name__ == "__main__":
    main(Path(__file__).parent / sys.argv[1])
