"""Models are fitted, read, simulated, scored and shown without JAX: none of it is imported, nothing is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from problems import small_fit, wiener_record

import tausid
from tausid.engine.library import missing
from tausid.results.runs import Run, RunFolder

needs_library = pytest.mark.skipif(missing() is not None, reason=f"no compiled library: {missing()}")
HEAVY = ("jax", "jaxlib", "equinox", "optax", "jaxtyping")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished run, and its record as a CSV file."""
    folder, record = tmp_path_factory.mktemp("run"), wiener_record(200)
    result = small_fit(record)
    RunFolder(folder).write(Run.from_result(result, train=[record], tests=[wiener_record(100, seed=2)]))
    free = tausid.fit(
        record,
        recipe=tausid.recipes.default(nx=2, hidden=(3,), network="mlp", activation="tanh").change(
            {"trainer.iterations": 2, "holdout": "none"}
        ),
        seed=0,
        progress=None,
    )
    free.model.save(folder / "free.safetensors")
    np.savetxt(folder / "record.csv", np.column_stack([record.u, record.y]), delimiter=",", header="u,y", comments="")
    return folder


def imported(code: str, folder: Path, *also: str) -> str:
    """What of the heavy libraries a program has imported at its end."""
    asked = (*HEAVY, *also)
    code += f"\nimport sys; print([name for name in {asked} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True)
    return done.stderr.splitlines()[-1]


@needs_library
@pytest.mark.parametrize("name", ["model.safetensors", "free.safetensors"])
def test_the_library_simulates_and_scores_without_jax(folder, name):
    code = f"""
import tausid
model = tausid.load_model({name!r})
record = tausid.read_csv("record.csv", inputs="u", outputs="y", ts=0.5)
simulation = model.simulate(record)
tausid.evaluate(model, record, x0="refine")
model.save("again.safetensors")
print(repr(model), model._repr_html_())
"""
    assert imported(code, folder, "scipy", "matplotlib", "rich", "pydantic") == "[]"


@needs_library
def test_an_ensemble_and_a_report_need_no_jax(folder):
    code = """
import tausid
from tausid import EnsembleModel
members = [tausid.load_model(name) for name in ("model.safetensors", "free.safetensors")]
EnsembleModel(tuple(members), (0.1, 0.2)).save("ensemble.safetensors")
both = tausid.load_model("ensemble.safetensors")
tausid.evaluate(both, tausid.read_csv("record.csv", inputs="u", outputs="y", ts=0.5))
tausid.report.write_report(".")
"""
    assert imported(code, folder) == "[]"


@needs_library
@pytest.mark.parametrize(
    "arguments",
    [
        "evaluate model.safetensors record.csv --input u --output y --ts 0.5",
        "simulate free.safetensors record.csv --input u --output y --ts 0.5 --out simulated.csv",
        "info free.safetensors",
    ],
)
def test_commands_need_no_jax(folder, arguments):
    code = f"""
import sys
from tausid.cli import main
sys.argv = ["tausid", *{arguments.split()!r}]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
    also = () if arguments.startswith("info") else ("scipy", "matplotlib", "rich", "pydantic")
    assert imported(code, folder, *also) == "[]"


@needs_library
def test_a_default_fit_needs_no_jax_and_compiles_nothing(folder):
    """Folds, random starts, final fits, consensus, an ensemble, checkpoints: by numpy and the library alone."""
    code = """
import subprocess, tausid
subprocess.Popen = None  # a compiler would be a process
record = tausid.read_csv("record.csv", inputs="u", outputs="y", ts=0.5)
settings = {"structure.hidden": (3,), "trainer.iterations": 2, "holdout.count": 2}
result = tausid.fit(record, seed=0, nx=2, settings=settings, progress=None, out="fit", ensemble=2)
assert result.status == "completed" and result.trust.members > 2, result.message
tausid.evaluate(result.model, record)
result.model.save("fitted.safetensors")
"""
    assert imported(code, folder, "matplotlib", "pydantic") == "[]"


@needs_library
def test_the_command_fit_needs_no_jax(folder):
    arguments = [
        "fit", "record.csv", "--input", "u", "--output", "y", "--ts", "0.5", "--nx", "2", "--seed", "0", "--json",
        "--set", "trainer.iterations=1", "--hidden", "2", "--set", "holdout.count=2", "--out", "run",
    ]  # fmt: skip
    code = f"""
import sys
from tausid.cli import main
sys.argv = ["tausid", *{arguments!r}]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
    assert imported(code, folder) == "[]"


def test_a_model_simulates_alike_with_and_without_the_compiled_library(folder):
    code = """
import tausid
model = tausid.load_model("free.safetensors")
record = tausid.read_csv("record.csv", inputs="u", outputs="y", ts=0.5)
print(*tausid.evaluate(model, record).rmse.values())
"""
    found = [
        float(subprocess.check_output([sys.executable, "-c", code], cwd=folder, env=env, text=True))
        for env in environments()
    ]
    # JAX simulates in single precision.
    np.testing.assert_allclose(*found, rtol=1e-4)


def environments() -> list[dict[str, str]]:
    import os

    return [{**os.environ, "TAUSID_NO_FUSED": value} for value in ("0", "1")]
