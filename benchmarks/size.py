"""How much memory does training on a record of ten million samples take?

    python benchmarks/size.py --json

A record of four channels (two inputs, two outputs) and its time stamps, in double precision, is made and then fitted
with the recipe `windows` for a few steps, windows drawn from all of it, in a process that has compiled the same fit
on a short record before. Told are the record's own size, what the fit added to it at its peak, and both per sample.
The training copy in single precision is half of the record: inputs, outputs, steps, and which outputs were measured.
Pass mark: the peak above the record is at most the size of the record, plus 200 MB.
"""

from __future__ import annotations

import argparse
import json

from paper import megabytes_of, pin, seconds

SAMPLES = 10_000_000
STEPS = 100
FIXED_MEGABYTES = 200.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="length of the record")
    parser.add_argument("--tau", default="bla", help="bla, or seconds")
    options = parser.parse_args()
    pin(options.core)
    result = measure(options.samples, options.tau if options.tau[:1].isalpha() else float(options.tau))
    print(json.dumps(result, indent=2) if options.json else as_text(result))


def measure(samples: int, tau: str | float) -> dict:
    """Megabytes of the record, and what a fit adds at its peak."""
    fit(make_record(20_000), tau)  # JAX and the engine are loaded; programs of this length are compiled anew
    record = make_record(samples)
    held = sum(array.nbytes for array in (record.u, record.y, record.t)) / 2**20
    took = []
    added = megabytes_of(lambda: took.append(seconds(lambda: fit(record, tau))))
    return {
        "samples": samples,
        "steps": STEPS,
        "record_megabytes": held,
        "added_megabytes": added,
        "added_bytes_per_sample": added * 2**20 / samples,
        "seconds": took[0],
        "passed": {"added_megabytes": added <= held + FIXED_MEGABYTES},
    }


def make_record(samples: int):
    """Two inputs and two filtered sums of them, with noise."""
    import numpy as np
    from scipy.signal import lfilter

    from tausid import Record

    rng = np.random.default_rng(0)
    u = rng.standard_normal((samples, 2))
    y = np.empty_like(u)
    for i, pole in enumerate((0.9, 0.97)):
        y[:, i] = lfilter([1.0 - pole], [1.0, -pole], u.sum(axis=1)) + 0.01 * rng.standard_normal(samples)
    return Record.from_arrays(u, y, ts=1.0, name="large")


def fit(record, tau: str | float) -> None:
    """A few steps with the recipe `windows`; the end of the record is held out."""
    import tausid

    settings = {"trainer.steps": STEPS, "trainer.validate_every": STEPS}
    tausid.fit(record, tau=tau, seed=0, recipe="windows", settings=settings, progress=None)


def as_text(result: dict) -> str:
    """The same in words."""
    return (
        f"{result['samples']} samples: the record has {result['record_megabytes']:.0f} MB, the fit adds "
        f"{result['added_megabytes']:.0f} MB ({result['added_bytes_per_sample']:.0f} bytes a sample), "
        f"{result['seconds']:.0f} s\n{'reached' if result['passed']['added_megabytes'] else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
