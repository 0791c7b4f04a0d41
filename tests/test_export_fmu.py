"""FMUs: validated, stepped and simulated by FMPy, against the interpreter."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exports import delayed, hostile, make_ensemble, make_model

from tausid.errors import ConfigError, StorageError
from tausid.export import Description, describe, fmu, interpreter, write_model
from tausid.export.check import TOLERANCE, make_check

fmpy = pytest.importorskip("fmpy", reason="no FMPy here")
from fmpy.validation import validate_fmu  # noqa: E402

COMPILER = fmu.find_compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
VERSIONS = (2, 3)


def write(description: Description, folder: Path, version: int) -> Path:
    path = folder / f"plant_{version}.fmu"
    path.write_bytes(fmu.make_fmu(description, "plant", version, COMPILER))
    return path


@contextmanager
def instance(path: Path, version: int, kind: str, x0: np.ndarray, states: list[int]) -> Iterator[Any]:
    """An FMU that begins at a state, with `get` and `set` of variables by value reference."""
    module, about = getattr(fmpy, f"fmi{version}"), fmpy.read_model_description(str(path))
    folder = fmpy.extract(str(path))
    made = getattr(module, f"FMU{version}{kind}")(
        guid=about.guid, unzipDirectory=folder, modelIdentifier="plant", instanceName="a"
    )
    names = ("getReal", "setReal") if version == 2 else ("getFloat64", "setFloat64")
    made.get, made.set = (getattr(made, name) for name in names)
    made.instantiate()
    if version == 2:
        made.setupExperiment(startTime=0.0)
    made.enterInitializationMode()
    made.set(states, x0.tolist())
    made.exitInitializationMode()
    yield made
    made.terminate()
    made.freeInstance()
    shutil.rmtree(folder)


def references(d: Description) -> tuple[list[int], ...]:
    """Of inputs, outputs, states and derivatives."""
    return tuple(
        part.tolist() for part in np.split(np.arange(1, 1 + d.nu + d.ny + 2 * d.nx), np.cumsum([d.nu, d.ny, d.nx]))
    )


@needs_compiler
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", ["leaky", "tanh", "cubic", "both", "autonomous", "mass", "ensemble"])
def test_the_validator_finds_nothing_and_co_simulation_reproduces_the_interpreter(case, version, tmp_path):
    model, record = make_ensemble(3) if case == "ensemble" else make_model(case)
    description = describe(model if case == "ensemble" else hostile(model, record))
    path = write(description, tmp_path, version)
    assert validate_fmu(str(path)) == []
    interpolated = version == 2  # FMI 3.0 holds inputs over a step
    description = description if interpolated else replace(description, hold=np.zeros(description.nu))
    check, (u, y, x, _) = make_check(description, long_steps=True), references(description)
    dt = np.diff(check.t)
    with instance(path, version, "Slave", check.x[0], x) as plant:
        rows = []
        for k in range(len(check.t)):
            plant.set(u, check.u[k].tolist())
            rows.append(plant.get([*x, *y]))
            if k < len(dt):
                if interpolated and u:
                    rise = (check.u[k + 1] - check.u[k]) / dt[k]
                    plant.setRealInputDerivatives(u, [1] * len(u), rise.tolist())
                plant.doStep(check.t[k], dt[k])
    expected = np.hstack([check.x, check.y])
    assert np.max(np.abs(np.array(rows) - expected) / np.abs(expected).max(axis=0)) <= TOLERANCE


@needs_compiler
@pytest.mark.parametrize("version", VERSIONS)
def test_derivatives_along_a_direction_are_those_of_the_interpreter_and_states_can_be_saved(version, tmp_path):
    description = describe(make_model("tanh")[0])
    u, y, x, dx = references(description)
    x_now, u_now = np.array([0.3, -0.2, 0.5]), np.array([2.0, 4.0])
    with instance(write(description, tmp_path, version), version, "Model", x_now, x) as plant:
        plant.set(u, u_now.tolist())
        np.testing.assert_allclose(plant.get(dx), interpreter.evaluate(description.f, x_now, u_now), rtol=1e-13)
        for function, rows in ((description.f, dx), (description.g, y)):
            whole = np.hstack(interpreter.jacobian(function, x_now, u_now))
            got = [plant.getDirectionalDerivative(rows, [known], [1.0]) for known in (*x, *u)]
            np.testing.assert_allclose(np.transpose(got), whole, rtol=1e-12, atol=1e-14)
        saved = plant.getFMUState()
        plant.set(x, [9.0, 9.0, 9.0])
        plant.setFMUState(saved)
        assert plant.get(x) == x_now.tolist()
        plant.freeFMUState(saved)
        with pytest.raises(Exception, match="[Ee]rror"):
            plant.set(y, [0.0, 0.0])
        plant.reset()
        assert plant.get(x) == description.x0.tolist()


@needs_compiler
@pytest.mark.parametrize("version", VERSIONS)
def test_model_exchange_gives_the_solution_of_the_equations(version, tmp_path):
    description = describe(make_model("autonomous")[0])
    start = {f"x{i + 1}": value for i, value in enumerate((1.0, -0.5, 0.3))}
    path = write(description, tmp_path, version)
    got = fmpy.simulate_fmu(
        str(path), fmi_type="ModelExchange", solver="CVode", relative_tolerance=1e-9, stop_time=10.0,
        output_interval=0.5, start_values=start, output=["x1", "x2", "x3"],
    )  # fmt: skip
    fine = replace(description, substeps=20)
    x, _ = interpreter.simulate(fine, np.array(list(start.values())), np.zeros((len(got), 0)), got["time"])
    # The solver's tolerance, over ten seconds.
    np.testing.assert_allclose(np.array([got[name] for name in start]).T, x, atol=1e-6)


@needs_compiler
def test_sources_compile_without_a_warning_and_only_the_interface_can_be_seen(tmp_path):
    description = describe(make_model("both")[0])
    for version in VERSIONS:
        with zipfile.ZipFile(write(description, tmp_path, version)) as archive:
            archive.extractall(tmp_path / str(version))
        folder = tmp_path / str(version) / "sources"
        flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-c"]
        subprocess.run([COMPILER, *flags, f"fmi{version}.c", "plant.c"], cwd=folder, check=True)
        if shutil.which("nm"):
            library = next((tmp_path / str(version) / "binaries").rglob("plant.*"))
            seen = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True).split()[2::3]
            assert seen and all(name.startswith(f"fmi{version}") for name in seen)


@needs_compiler
def test_the_command_in_the_readme_verifies_both(tmp_path):
    model, record = make_model("tanh")
    files = write_model(hostile(model, record), "fmu", tmp_path, name="plant")
    assert {path.name for path in files} == {path.name for path in tmp_path.iterdir()}
    done = subprocess.run([sys.executable, str(tmp_path / "plant_check.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("valid") == 2


@needs_compiler
def test_co_simulation_delays_inputs_and_model_exchange_takes_them_delayed(tmp_path):
    model, _ = delayed("leaky")
    write_model(model, "fmu", tmp_path, name="plant")
    done = subprocess.run([sys.executable, str(tmp_path / "plant_check.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    description = describe(model)
    u, y, x, dx = references(description)
    D = interpreter.jacobian(description.g, np.zeros(3), np.ones(1))[1][0, 0]
    for kind, change in (("Model", D), ("Slave", 0.0)):
        with instance(tmp_path / "plant_fmi2.fmu", 2, kind, np.zeros(3), x) as plant:
            plant.set(u, [1.0])  # what it was before as well, as nothing came before
            np.testing.assert_allclose(plant.get(dx), interpreter.evaluate(description.f, np.zeros(3), np.ones(1)))
            np.testing.assert_allclose(plant.getDirectionalDerivative(y, u, [1.0]), [change], rtol=1e-12)


def test_delays_with_first_order_hold_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="must have zero-order hold.*in 1 has first-order hold"):
        write_model(delayed("tanh")[0], "fmu", tmp_path, name="plant")


def test_without_a_compiler_the_sources_are_there_and_the_readme_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    write_model(make_model("leaky")[0], "fmu", tmp_path, name="plant")
    with zipfile.ZipFile(tmp_path / "plant_fmi2.fmu") as archive:
        assert sorted(archive.namelist()) == ["modelDescription.xml", *(
            f"sources/{name}" for name in ("fmi2.c", "instance.h", "plant.c", "plant.h")
        )]  # fmt: skip
    assert "no library, as there was no C compiler" in (tmp_path / "README.md").read_text()
    assert validate_fmu(str(tmp_path / "plant_fmi3.fmu")) == []


def test_a_compiler_that_fails_is_named(tmp_path):
    with pytest.raises(StorageError, match="must compile.*by the variable CC"):
        fmu.make_fmu(describe(make_model("leaky")[0]), "plant", 2, shutil.which("false"))
