"""The C sources: compiled with every warning as an error, in both precisions, as C++, and under sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import printed
from exports import CASES, HOSTILE, delayed, hostile, make_ensemble, make_model

from tausid import ConfigError
from tausid.control import Noise, Observer
from tausid.engine.networks import ACTIVATIONS
from tausid.export import describe, write_model

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler (gcc or clang) here")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
LANGUAGES = {"double": ["-std=c99"], "float": ["-std=c99", "-Dplant_FLOAT"], "C++": ["-x", "c++"]}


def build_and_run(folder: Path, compiler: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [compiler, *flags, *WARNINGS, "plant.c", "plant_check.c", "-lm", "-o", "check"]
    subprocess.run(command, cwd=folder, check=True)
    return subprocess.run(["./check"], cwd=folder, capture_output=True, text=True)


@needs_compiler
@pytest.mark.parametrize("case", [*CASES, "ensemble"])
def test_the_sources_compile_without_a_warning_and_reproduce_the_simulation(case, tmp_path):
    model, _ = make_ensemble(3) if case == "ensemble" else make_model(case)
    write_model(model, "c", tmp_path, name="plant")
    languages = LANGUAGES if case == "tanh" or case not in ACTIVATIONS else {"double": LANGUAGES["double"]}
    for compiler in COMPILERS:
        for flags in languages.values():
            done = build_and_run(tmp_path, compiler, *flags)
            assert done.returncode == 0, done.stdout + done.stderr


@needs_compiler
@pytest.mark.parametrize("case", ["tanh", "both", "autonomous"])
def test_sanitizers_find_nothing(case, tmp_path):
    write_model(make_model(case)[0], "c", tmp_path, name="plant")
    flags = ["-std=c99", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    probe = [COMPILERS[0], *flags, "-x", "c", "-", "-o", str(tmp_path / "probe")]
    if subprocess.run(probe, input="int main(void) { return 0; }", text=True, capture_output=True).returncode:
        pytest.skip(f"{COMPILERS[0]} has no sanitizers here")
    done = build_and_run(tmp_path, COMPILERS[0], *flags)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_compiler
def test_the_check_fails_where_the_model_is_another(tmp_path):
    write_model(make_model("tanh")[0], "c", tmp_path, name="plant")
    source = tmp_path / "plant.c"
    text = source.read_text()
    first = re.search(r"static const real k\d+\[\d+\]\[\d+\] = \{\n  \{R\(([^)]+)\)", text)
    changed = repr(float(first[1]) * (1 + 1e-9))  # one weight, in the tenth digit
    source.write_text(text[: first.start(1)] + changed + text[first.end(1) :])
    done = build_and_run(tmp_path, COMPILERS[0], "-std=c99")
    assert done.returncode == 1
    assert "too large" in done.stdout


@needs_compiler
def test_hostile_names_become_safe_ones_and_the_header_says_which(tmp_path):
    model, record = make_model("tanh")
    write_model(hostile(model, record), "c", tmp_path, name="plant")
    assert build_and_run(tmp_path, COMPILERS[0], "-std=c99").returncode == 0
    header = (tmp_path / "plant.h").read_text("ascii")
    assert r'u__rm_rf_: "\"; rm -rf \/ #"' in header
    assert f'y_while: "{HOSTILE[-1]}"' in header


@needs_compiler
def test_delays_of_inputs(tmp_path):
    """Past inputs lie in a ring; one that is too small says so (the check ends with 2)."""
    write_model(delayed()[0], "c", tmp_path, name="plant")
    for flags in LANGUAGES.values():
        done = build_and_run(tmp_path, COMPILERS[0], *flags)
        assert done.returncode == 0, done.stdout + done.stderr
    assert build_and_run(tmp_path, COMPILERS[0], "-std=c99", "-Dplant_HISTORY=3").returncode == 2
    assert "as it was 2.37 s before" in (tmp_path / "plant.h").read_text()
    assert "in 1 by 2.37 s" in (tmp_path / "README.md").read_text()


# Reads covariances, then inputs, outputs (nan where missing) and time steps; prints states and covariances.
OBSERVE = """
#include <stdio.h>
#include "plant.h"
enum { NX = plant_NX, NU = plant_NU, NY = plant_NY };
static plant_real number(void) { double v = 0; return scanf("%lf", &v) == 1 ? (plant_real)v : (plant_real)0; }
int main(void) {
  plant_observer o;
  plant_real Q[NX * NX], V[NY * NY], u[NU + 1], y[NY];
  for (int i = 0; i < NX * NX; ++i) Q[i] = number();
  for (int i = 0; i < NY * NY; ++i) V[i] = number();
  plant_observer_init(&o, Q, V);
  for (;;) {
    const plant_real dt = number();
    if (dt < 0) return 0;
    for (int i = 0; i < NU; ++i) u[i] = number();
    for (int i = 0; i < NY; ++i) y[i] = number();
    if (plant_observer_update(&o, u, y, dt)) return 1;
    for (int i = 0; i < NX; ++i) printf("%.17g ", (double)o.x[i]);
    for (int i = 0; i < NX * NX; ++i) printf("%.17g ", (double)o.P[i]);
  }
}
"""


@needs_compiler
@pytest.mark.parametrize("case", ["leaky", "tanh", "both", "autonomous", "tanks", "delayed", "ensemble"])
def test_the_observer_in_c_is_that_in_python(case, tmp_path):
    """Full covariances, single outputs missing and whole samples, an uneven clock with a long step."""
    model, record = {"delayed": delayed, "ensemble": lambda: make_ensemble(3)}.get(case, lambda: make_model(case))()
    rng = np.random.default_rng(0)
    y = np.where(rng.random(record.y.shape) < 0.2, np.nan, record.y)
    y[10:14] = np.nan
    nx, ny = describe(model).nx, record.ny
    Q, V = (m @ m.T * 0.02 + 0.01 * np.eye(len(m)) for m in (rng.normal(size=(n, n)) for n in (nx, ny)))
    observer = Observer(model, Noise(Q, V))
    estimates = [observer.update(*sample) for sample in zip(record.u, y, record.t, strict=True)]
    expected = np.array([[*e.x, *e.P.ravel()] for e in estimates])
    rows = np.column_stack([np.diff(record.t, prepend=record.t[0]), record.u, y])
    given = " ".join(map(repr, [*Q.ravel().tolist(), *V.ravel().tolist(), *rows.ravel().tolist(), -1.0]))
    write_model(model, "c", tmp_path, name="plant")
    (tmp_path / "observe.c").write_text(OBSERVE)
    # The tolerance in single precision is some hundred roundings, which a filter carries along.
    languages = {"double": 1e-10, **({"float": 1e-4, "C++": 1e-10} if case == "tanh" else {})}
    for language, tolerance in languages.items():
        command = [COMPILERS[0], *LANGUAGES[language], *WARNINGS, "plant.c", "observe.c", "-lm", "-o", "observe"]
        subprocess.run(command, cwd=tmp_path, check=True)
        done = subprocess.run(["./observe"], cwd=tmp_path, input=given, capture_output=True, text=True, check=True)
        got = np.array(done.stdout.split(), float).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, atol=tolerance * np.abs(expected).max())


@needs_compiler
def test_the_observer_in_c_says_what_it_cannot_take(tmp_path):
    """Time that stands still, noise that is not positive definite, and a ring too small for the delays."""
    write_model(delayed()[0], "c", tmp_path, name="plant")
    (tmp_path / "refuse.c").write_text(
        """
        #include <stdio.h>
        #include "plant.h"
        int main(void) {
          plant_observer o;
          plant_real Q[9] = {0}, none[4] = {1, 0, 0, -100}, some[4] = {1, 0, 0, 1}, u[2] = {3, 3}, y[2] = {0, 0};
          plant_observer_init(&o, Q, none);
          printf("%d ", plant_observer_update(&o, u, y, 0));
          plant_observer_init(&o, Q, some);
          printf("%d ", plant_observer_update(&o, u, y, 0));
          printf("%d ", plant_observer_update(&o, u, y, 0));
          for (int i = 0; i < 3; ++i) plant_observer_update(&o, u, NULL, (plant_real)0.1);
          printf("%d", plant_observer_update(&o, u, y, (plant_real)0.1));
          return 0;
        }
        """
    )
    command = [COMPILERS[0], "-std=c99", "-Dplant_HISTORY=3", "plant.c", "refuse.c", "-lm", "-o", "refuse"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.check_output(["./refuse"], cwd=tmp_path, text=True) == "2 0 1 3"


def test_sources_hold_nothing_that_allocates_or_is_kept_between_calls(tmp_path):
    write_model(make_model("both")[0], "c", tmp_path, name="plant")
    text = (tmp_path / "plant.c").read_text()
    assert not re.search(r"alloc|#include <(?!math\.h)", text)
    assert re.findall(r"^ *static (?!const|void|int)", text, re.MULTILINE) == []


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        write_model(make_model("both")[0], "c", tmp_path / folder)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize("name", ["", "2nd", "a b", "x" * 41, "é", "a;b", "../a"])
def test_names_that_are_none_are_refused(name, tmp_path):
    with pytest.raises(ConfigError, match="`name` must be a letter"):
        write_model(make_model("leaky")[0], "c", tmp_path, name=name)


def test_an_unknown_target_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown to 'fortran'"):
        write_model(make_model("leaky")[0], "fortran", tmp_path)


def test_the_command_writes_the_files_and_prints_their_paths(tmp_path):
    path = make_model("leaky")[0].save(tmp_path / "model.safetensors")
    text = printed("export", path, "--to", "c", "--out", tmp_path / "c", "--name", "plant")
    files = {Path(line).name for line in text.splitlines()}
    assert files == {"plant.h", "plant.c", "plant_check.c", "README.md"} == {p.name for p in (tmp_path / "c").iterdir()}
