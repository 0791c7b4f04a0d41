"""The compiled library as programs use it: from threads, after a fork, with arrays of any layout and of no length."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from tausid.engine import compiled
from tausid.engine.integrators import FixedStep
from tausid.engine.library import missing
from tausid.engine.networks import Network

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no compiled library: {missing()}")


def networks(nx: int = 2, nu: int = 1, ny: int = 1, hidden: tuple[int, ...] = (5,)) -> tuple[Network, Network]:
    rng = np.random.default_rng(nx + 10 * nu)
    make = {"hidden": hidden, "activation": "tanh", "weight_range": 0.3, "bias_range": 0.1}
    f, g = Network.random(rng, nx + nu, nx, **make), Network.random(rng, nx + nu, ny, **make)
    f.linear[:, :nx] -= np.eye(nx)
    return f, g


def simulate(x0: np.ndarray, u: np.ndarray, dt: np.ndarray, **sizes: int) -> tuple[np.ndarray, np.ndarray]:
    return compiled.simulate(*networks(**sizes), 1.0, None, FixedStep(), x0, u, dt)


def case(seed: int, N: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=2), rng.normal(size=(N, 1)), rng.uniform(0.01, 0.1, N - 1)


def test_eight_threads_at_once_give_what_one_gives():
    cases = [case(seed) for seed in range(8)]
    alone = [simulate(*one) for one in cases]
    begin, found = threading.Barrier(8), [[] for _ in cases]

    def work(i: int) -> None:
        begin.wait()
        for _ in range(20):
            found[i].append(simulate(*cases[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wanted, got in zip(alone, found, strict=True):
        assert len(got) == 20
        for x, y in got:
            np.testing.assert_array_equal(x, wanted[0])
            np.testing.assert_array_equal(y, wanted[1])


def test_threads_share_one_system_and_its_normal_equations():
    f, g = networks()
    system = compiled.System.of(f, g, 1.0, None, FixedStep())
    x0, u, dt = case(0)
    samples = compiled.Samples.join([u, u[:500]], [np.sin(u), np.cos(u[:500])], [dt, dt[:499]])
    theta, start = system.pack(f, g), np.stack([x0, -x0])
    wanted = system.normal(theta, start, samples)
    found: list[compiled.Normal] = []
    threads = [threading.Thread(target=lambda n=n: found.append(system.normal(theta, start, samples, threads=n)))
               for n in (1, 1, 1, 1, 2, 2, 2, 2)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for got in found:
        # Two threads add their sums in another order.
        np.testing.assert_allclose(got.H, wanted.H, rtol=1e-12, atol=1e-12 * np.abs(wanted.H).max())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # by JAX, where another test imported it
def test_a_fork_after_use_computes_the_same():
    wanted = simulate(*case(1))[1]
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(simulate(*case(1))[1], wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(simulate(*case(1))[1], wanted)


@pytest.mark.parametrize(
    ("N", "sizes"),
    [(1, {}), (2, {}), (3, {"nu": 0}), (1, {"nu": 0}), (3, {"nx": 1, "hidden": ()})],
)
def test_sizes_of_zero_and_one(N, sizes):
    x0, u = np.full(sizes.get("nx", 2), 0.1), np.zeros((N, sizes.get("nu", 1)))
    x, y = simulate(x0, u, np.full(max(N - 1, 0), 0.1), **sizes)
    assert x.shape == (N, len(x0)) and y.shape == (N, 1)
    assert np.isfinite(x).all() and np.isfinite(y).all()
    np.testing.assert_array_equal(x[0], x0)


def test_no_samples_are_refused_in_words():
    with pytest.raises(ValueError, match="`dt` must have shape"):
        simulate(np.zeros(2), np.zeros((0, 1)), np.zeros(0))


def misaligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at an address that no vector instruction likes."""
    raw = np.zeros(array.nbytes + 3, np.uint8)
    odd = raw[3:].view(float).reshape(array.shape)
    odd[...] = array
    assert not odd.flags.aligned
    return odd


LAYOUTS = {
    "misaligned": misaligned,
    "every second": lambda array: np.repeat(array, 2, axis=0)[::2],
    "backwards": lambda array: array[::-1].copy()[::-1],
    "Fortran": np.asfortranarray,
    "big-endian": lambda array: array.astype(">f8"),
    "read-only": lambda array: np.frombuffer(array.tobytes()).reshape(array.shape),
    "single": lambda array: array.astype(np.float32),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_arrays_gives_the_same(layout):
    x0, u, dt = (a.astype(np.float32).astype(float) for a in case(2, N=50))  # what single precision has, too
    wanted = simulate(x0, u, dt)[1]
    change = LAYOUTS[layout]
    np.testing.assert_array_equal(simulate(change(x0), change(u), change(dt))[1], wanted)
    f, g = networks()
    system = compiled.System.of(f, g, change(np.ones(2)), None, FixedStep())
    samples = compiled.Samples(np.array([50]), change(u), change(np.zeros((50, 1))), change(np.ones((50, 1))),
                               change(np.append(dt, 0.0)))  # fmt: skip
    theta = system.pack(f, g).astype(np.float32).astype(float)
    changed = system.simulate(change(theta), change(x0[None]), samples)[1]
    np.testing.assert_array_equal(changed, system.simulate(theta, x0[None], samples)[1])
