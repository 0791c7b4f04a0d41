"""The C sources: compiled with every warning as an error, in both precisions, as C++, and under sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import printed
from exports import CASES, HOSTILE, delayed, hostile, make_ensemble, make_model

from tausid import ConfigError
from tausid.engine.networks import ACTIVATIONS
from tausid.export import write_model

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
