"""What the suite's models are compared with, computed from the same records and scored on the same samples.

Writes references.csv: the noise floor, the mean of the training output, tausid's best linear approximation, ARX and
polynomial NARX models in free run, and the best published value. Orders are chosen on the last part of the training
record; the test record is only scored. Needs `pip install -r requirements.txt` and the records (docs/data.md).

    python references.py [NAME ...]
"""

from __future__ import annotations

import csv
import itertools
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.linalg import expm
from sklearn.linear_model import LinearRegression, orthogonal_mp
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import tausid
from tausid import Dataset, LinearModel, Record, datasets
from tausid.results.comparison import COLUMNS, REFERENCES
from tausid.study import read_spec
from tausid.study.study_data import load_source

HERE = Path(__file__).parent
HELD_OUT = 0.3  # share of the training record that orders are chosen on
LINEAR_SAMPLES = 20_000  # a linear model is found from so many samples at most
LINEAR_ORDERS = (1, 2, 3, 4, 5, 6, 8)
ARX_LAGS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
NARX_LAGS = (1, 2, 3, 4, 6, 10, 12)
NARX_DEGREES = (2, 3)
NARX_TERMS = (4, 7, 10, 15, 20, 30)
MOST_FEATURES = 600
TOO_LARGE = 1e3  # deviations from the mean: a free run that comes here has diverged
# FACTS of the field, in the outputs' units: Rogers 2017 (grey box; the best black box has 0.25 V), dynoNet 2021, and
# the NL-LFR model of 2025.
PUBLISHED = {
    ("cascaded_tanks", "official_rmse"): 0.18,
    ("emps", "official_rmse"): 2.64e-3,
    ("silverbox", "official_rmse"): 0.289e-3,
    ("silverbox", "official_rmse:arrow_full"): 0.334e-3,
    ("silverbox", "official_rmse:arrow_no_extrapolation"): 0.257e-3,
}


@dataclass(frozen=True)
class Narx:
    """y[k] = polynomial of the last outputs and inputs, in z-scored units; degree 1 is an ARX model."""

    lags: int
    powers: np.ndarray  # (terms, regressors)
    coefficients: np.ndarray  # (terms, ny)
    offset: np.ndarray  # (ny,)
    u_scale: StandardScaler
    y_scale: StandardScaler

    def simulate(self, record: Record, window: int) -> np.ndarray:
        """Free run; measured outputs of the window are the initial conditions."""
        u, y = self.u_scale.transform(record.u), self.y_scale.transform(record.y)
        y[window:] = np.nan
        terms = [np.flatnonzero(row) for row in self.powers]
        exponents = [row[place] for row, place in zip(self.powers, terms, strict=True)]
        linear = self.powers.max() <= 1 and all(len(place) == 1 for place in terms)
        order = np.concatenate(terms) if linear else None
        for k in range(window, len(y)):
            past = np.concatenate([y[k - self.lags : k].ravel(), u[k - self.lags : k + 1].ravel()])
            if linear:
                features = past[order]
            else:
                features = np.array([np.prod(past[i] ** e) for i, e in zip(terms, exponents, strict=True)])
            y[k] = features @ self.coefficients + self.offset
            if not np.all(np.abs(y[k]) < TOO_LARGE):
                y[k:] = np.inf
                break
        return self.y_scale.inverse_transform(np.where(np.isfinite(y), y, np.nan))


def regressors(record: Record, lags: int, u_scale: StandardScaler, y_scale: StandardScaler) -> np.ndarray:
    """The last outputs and inputs of each sample from the first that has them on, the present input among them."""
    u, y = u_scale.transform(record.u), y_scale.transform(record.y)
    rows = range(lags, len(y))
    return np.stack([np.concatenate([y[k - lags : k].ravel(), u[k - lags : k + 1].ravel()]) for k in rows])


def arx_candidates(record: Record) -> Iterator[tuple[object, Narx]]:
    """ARX models by their order: least squares of the prediction error."""
    u_scale, y_scale = StandardScaler().fit(record.u), StandardScaler().fit(record.y)
    for lags in ARX_LAGS:
        count = lags * (record.nu + record.ny) + record.nu
        if 3 * count > len(record):
            return
        x, y = regressors(record, lags, u_scale, y_scale), y_scale.transform(record.y[lags:])
        fit = LinearRegression().fit(x, y)
        yield lags, Narx(lags, np.eye(count, dtype=int), fit.coef_.T, fit.intercept_, u_scale, y_scale)


def narx_candidates(record: Record) -> Iterator[tuple[object, Narx]]:
    """Polynomial NARX models by order, degree and number of terms: forward selection of the prediction error."""
    u_scale, y_scale = StandardScaler().fit(record.u), StandardScaler().fit(record.y)
    for lags, degree in itertools.product(NARX_LAGS, NARX_DEGREES):
        polynomial = PolynomialFeatures(degree, include_bias=False)
        count = lags * (record.nu + record.ny) + record.nu
        if polynomial.fit(np.zeros((1, count))).n_output_features_ > min(MOST_FEATURES, len(record) // 2):
            continue
        features = polynomial.transform(regressors(record, lags, u_scale, y_scale))
        yield from selections(record, lags, polynomial, features, u_scale, y_scale)


def selections(
    record: Record,
    lags: int,
    polynomial: PolynomialFeatures,
    features: np.ndarray,
    u_scale: StandardScaler,
    y_scale: StandardScaler,
) -> Iterator[tuple[object, Narx]]:
    """Models with more and more terms, which each output selects for itself."""
    y = y_scale.transform(record.y[lags:])
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-12
    scaled = (features - mean) / spread
    most = min(max(NARX_TERMS), features.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # terms that depend on others end the selection early
        paths = [
            orthogonal_mp(scaled, channel - channel.mean(), n_nonzero_coefs=most, precompute=True, return_path=True)
            for channel in y.T
        ]
    for terms in NARX_TERMS:
        if terms > most:
            return
        weights = np.stack([path[:, min(terms, path.shape[1]) - 1] for path in paths], axis=1) / spread[:, None]
        used = np.flatnonzero(weights.any(axis=1))
        offset = y.mean(axis=0) - mean[used] @ weights[used]
        model = Narx(lags, polynomial.powers_[used], weights[used], offset, u_scale, y_scale)
        yield (lags, polynomial.degree, terms), model


def choose(candidates, train: Record, window: int) -> tuple[object, Narx] | None:
    """The candidate that simulates the last part of the training record best, fitted again to all of it."""
    cut = round((1 - HELD_OUT) * len(train))
    first, last = train.part(0, cut), train.part(cut - window, len(train))
    scale = np.std(last.y[window:], axis=0)
    errors = {
        key: float(np.nan_to_num(np.mean(rmse(last, model.simulate(last, window), window) / scale), nan=np.inf))
        for key, model in candidates(first)
        if key_lags(key) <= window
    }
    best = min(errors, key=errors.get, default=None)
    if best is None or not np.isfinite(errors[best]):
        return None
    return best, next(model for key, model in candidates(train) if key == best)


def key_lags(key) -> int:
    """How many past samples a candidate needs."""
    return key[0] if isinstance(key, tuple) else key


def rmse(record: Record, y: np.ndarray, window: int) -> np.ndarray:
    """Of each output over every sample after the window; infinite where the free run diverged."""
    errors = np.sqrt(np.mean((record.y[window:] - y[window:]) ** 2, axis=0))
    return np.where(np.isfinite(errors), errors, np.inf)


def choose_linear(train: Record, scored: Record, window: int) -> LinearModel:
    """The best linear approximation, its order chosen as those of the others: the initial state is part of the score.

    `scored` is the training record on the clock of the test records.
    """
    cut = round((1 - HELD_OUT) * len(scored))
    first = train.part(0, min(round((1 - HELD_OUT) * len(train)), LINEAR_SAMPLES))
    last = scored.part(cut - window, len(scored))
    errors = {}
    for nx in LINEAR_ORDERS:
        try:
            model = on_clock(tausid.estimate_bla(first, nx=nx), scored.ts)
        except tausid.DataError:  # more states than the record can carry
            break
        errors[nx] = float(np.mean(rmse(last, model.simulate(last, x0_samples=window), window) / last.y.std(axis=0)))
    best = min(errors, key=errors.get)
    return on_clock(tausid.estimate_bla(train.part(0, LINEAR_SAMPLES), nx=best), scored.ts)


def on_clock(linear: LinearModel, ts: float) -> LinearModel:
    """The same continuous-time model with the discrete form of another clock, for inputs held between samples."""
    nx, nu = linear.B.shape
    both = expm(ts * np.block([[linear.A, linear.B], [np.zeros((nu, nx + nu))]]))
    return replace(linear, Ad=both[:nx, :nx], Bd=both[:nx, nx:], ts=ts)


def columns_of(role: str, tests: Sequence[Record], errors: Sequence[np.ndarray]) -> Iterator[tuple[str, float]]:
    """Names as in results.csv."""
    for i, (record, values) in enumerate(zip(tests, errors, strict=True)):
        column = f"{role}_rmse" + (f":{record.name}" if i else "")
        for output, value in zip(record.output_names, values, strict=True):
            yield column if record.ny == 1 else f"{column}:{output}", float(value)


def references(train: Record, tests: Sequence[Record], window: int) -> dict[str, list[np.ndarray]]:
    """Errors on each test record by what made them."""
    found = {"mean": [rmse(test, np.broadcast_to(train.y.mean(axis=0), test.y.shape), window) for test in tests]}
    linear = choose_linear(train, train, window)
    found["linear"] = [rmse(test, linear.simulate(test, x0_samples=window), window) for test in tests]
    print(f"  linear: order {linear.order}", flush=True)
    for name, candidates in (("ARX", arx_candidates), ("NARX", narx_candidates)):
        chosen = choose(candidates, train, window)
        print(f"  {name}: {None if chosen is None else chosen[0]}", flush=True)
        if chosen is not None:
            found[name] = [rmse(test, chosen[1].simulate(test, window), window) for test in tests]
    return found


def official_references(data: Dataset, train: Record) -> dict[str, list[np.ndarray]]:
    """Mean and linear model at the official rate; ARX and NARX models know no other rate than their own."""
    window, tests = data.score_skip, data.tests
    linear = choose_linear(train, data.train, window)
    print(f"  linear, official: order {linear.order}", flush=True)
    return {
        "mean": [rmse(test, np.broadcast_to(train.y.mean(axis=0), test.y.shape), window) for test in tests],
        "linear": [rmse(test, linear.simulate(test, x0_samples=window), window) for test in tests],
    }


def rows_of(name: str, train: Record, tests: Sequence[Record], window: int) -> Iterator[tuple[str, str, str, float]]:
    """All reference values of one plant."""
    data = datasets.load(name)
    if data.noise:
        for column, value in columns_of("test", tests, [np.array(data.noise)] * len(tests)):
            yield name, column, "noise", value
    found = references(train, tests, window)
    for reference, errors in found.items():
        for column, value in columns_of("test", tests, errors):
            yield name, column, reference, value
    if data.score_skip:
        same = data.score_skip == window and np.isclose(data.test.ts, train.ts)
        for reference, errors in (found if same else official_references(data, train)).items():
            for column, value in columns_of("official", data.tests, errors):
                yield name, column, reference, value
    for (plant, column), value in PUBLISHED.items():
        if plant == name:
            yield name, column, "published", value


def main(wanted: Sequence[str]) -> None:
    """Compute the references of some plants, or of all, and write each as soon as it is known."""
    spec = read_spec(HERE / "study.toml")
    path = HERE / REFERENCES
    held = list(csv.reader(path.open()))[1:] if path.exists() else []
    for name, source in spec.sources.items():
        if wanted and name not in wanted:
            continue
        print(name, flush=True)
        began = time.process_time()
        (train,), tests = load_source(source)
        rows = [[*words, f"{value:.6g}"] for *words, value in rows_of(name, train, tests, spec.settings["window"])]
        held = [row for row in held if row[0] != name] + rows
        order = list(spec.sources)
        held.sort(key=lambda row: order.index(row[0]))  # stable: rows of one plant keep their order
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *held])
        print(f"  {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
