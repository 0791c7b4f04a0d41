"""Parts of long records that structures are tried on."""

import numpy as np
import pytest
from problems import wiener_record

from tausid import Record
from tausid.training.stretches import cut_stretches, every_needed


def a_record(u: np.ndarray, ts: float = 1.0) -> Record:
    return Record.from_arrays(u, np.cumsum(u[:, :1], axis=0), ts=ts)


def moving(samples: int, inputs: int = 2) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((samples, inputs))


def test_stretches_are_spread_over_the_records():
    parts = cut_stretches([a_record(moving(40_000))], 4096)
    assert [len(part) for part in parts] == [1024] * 4
    assert [part.t[0] for part in parts] == [0.0, 10_000.0, 20_000.0, 30_000.0]
    short = a_record(moving(500))
    assert cut_stretches([short], 4096) == (short,)
    both = cut_stretches([a_record(moving(30_000)), a_record(moving(10_000))], 4096)
    assert sum(map(len, both)) == pytest.approx(4096, rel=0.01)


def test_stretches_lie_where_the_inputs_move():
    u = moving(40_000)
    u[:12_000] = [1.0, 0.0]  # still in all of the first quarter, and in the beginning of the second
    parts = cut_stretches([a_record(u)], 4096)
    assert len(parts) == 3 and parts[0].t[0] > 10_900
    never_both = moving(40_000)
    never_both[:20_000, 0] = 0.0
    never_both[20_000:, 1] = 0.0
    (whole,) = cut_stretches([a_record(never_both)], 4096)
    assert len(whole) == 40_000
    constant = np.column_stack([moving(40_000, 1), np.ones(40_000)])
    assert len(cut_stretches([a_record(constant)], 4096)) == 4  # an input that never moves has no say


def test_slow_dynamics_are_looked_at_more_slowly():
    t = np.arange(60_000) * 1e-3
    record = Record.from_arrays(np.sin(t), np.cos(t), t=t)
    parts = cut_stretches([record], 4096, every=12)
    assert np.diff(parts[0].t) == pytest.approx(12e-3)
    middle = slice(100, -100)  # a sine far below the cut-off passes the filter; its ends do not
    part = parts[1]
    assert np.abs(part.u[middle, 0] - np.sin(part.t[middle])).max() < 1e-3
    short = wiener_record(600)
    assert cut_stretches([short], 4096, every=12) == (short,)  # too short to leave something out


def test_a_fast_clock_needs_few_of_its_samples():
    u, jitter = moving(200, 1), 0.2 * (np.arange(200) % 2)
    assert every_needed([a_record(u)], tau=400.0) == 12  # then Ts/tau is 0.03
    assert every_needed([a_record(u)], tau=10.0) == 1
    assert every_needed([Record.from_arrays(u, u, t=np.arange(200) + jitter)], tau=400.0) == 1
