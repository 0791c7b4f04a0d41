"""What all tests share. Array shapes are checked at run time here, and only here."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

# One single-threaded process per core is fastest for models this small. Most of the time goes into compiling programs
# that run once: these are optimised less here than for users, and kernels are written by the older emitters, which
# compile in less than half the time. Set XLA_FLAGS to test with others.
# JAX 0.11.1 has no older emitters, and XLA ends a process that sets a flag it does not know.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false --xla_cpu_parallel_codegen_split_count=1"
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + (" --xla_cpu_use_fusion_emitters=false" if [int(n) for n in version("jaxlib").split(".")[:2]] < [0, 11] else ""),
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from jaxtyping import install_import_hook

# The rooms of arrays. TAUSID_CHECKED=all checks the other ones, too, which costs the whole suite half its time again.
ROOMS = ("engine", "model", "training")
if os.environ.get("TAUSID_CHECKED") == "all":
    ROOMS += ("data", "linear", "results", "study")
# They refuse in words, or are loops over numbers.
OWN_RULES = (
    "tausid.data.plants._integrate",
    "tausid.data.plants._simulate",
    "tausid.data.plants._tanks",
    "tausid.data.records._convert",
    "tausid.data.records._record",
    "tausid.data.records._rules",
    "tausid.data.records._sets",
    "tausid.engine.compiled",
    "tausid.model.state_estimate",
    "tausid.model.structure",
    "tausid.results.plots._simulation",
    "tausid.training.fitting",
    "tausid.training.parts",
    "tausid.training.recipe",
    "tausid.training.recipes",
    "tausid.training.settings",
)
checks = install_import_hook([f"tausid.{room}" for room in ROOMS], "typechecks.check").hook
checks.should_instrument = lambda name: name not in OWN_RULES and type(checks).should_instrument(checks, name)


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_end_with_their_module() -> Iterator[None]:
    """Programs of one module are of no use to the next, and all of them would take gigabytes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


@pytest.fixture
def benchmark_folder() -> Path:
    """The folder of real benchmark records, or a skip that says how to get it."""
    folder = os.environ.get("TAUSID_DATA")
    if not folder:
        pytest.skip("TAUSID_DATA is not set: no real benchmark records here")
    return Path(folder)


@pytest.fixture
def offline(monkeypatch, tmp_path) -> None:
    """As without internet: no folder of records, nothing downloaded earlier, and addresses at which nobody is."""
    from tausid.data.datasets._benchmarks import BENCHMARKS

    monkeypatch.delenv("TAUSID_DATA", raising=False)
    monkeypatch.setenv("TAUSID_CACHE", str(tmp_path / "cache"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    for name, benchmark in BENCHMARKS.items():
        monkeypatch.setitem(BENCHMARKS, name, replace(benchmark, addresses=("http://127.0.0.1:9/",)))


@pytest.fixture(scope="module")
def one_reading_process() -> Iterator[type]:
    """One process reads the MATLAB and HDF5 files of all tests, as starting one takes longer than reading hundreds."""
    from tausid.data.readers import _isolated

    kind, shared = _isolated.Worker, _isolated.Worker()
    end = shared.close
    shared.close = lambda: None
    _isolated.Worker = lambda: shared
    yield kind
    _isolated.Worker = kind
    end()


@pytest.fixture(autouse=True)
def searches_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests keep all cores busy by themselves; those of processes ask for them."""
    monkeypatch.setattr("tausid.training.trials.WORTH_PROCESSES", math.inf)
