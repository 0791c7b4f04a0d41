"""ONNX, CasADi and MATLAB, each against the interpreter, with the programs that would run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exports import CASES, HOSTILE, delayed, hostile, make_ensemble, make_model

from tausid.engine.steppers import RK4
from tausid.errors import ConfigError, MissingExtraError
from tausid.export import describe, interpreter, to_casadi, to_control, to_onnx, to_state_space, write_model
from tausid.export.check import TOLERANCE, TOLERANCE_FLOAT, make_check
from tausid.export.description import Description

ALL = [*CASES, "ensemble"]
FEW = [case for case in ALL if case not in ("relu", "gelu", "silu", "sigmoid")]  # other functions than these have
OCTAVE = shutil.which("octave-cli")
needs_octave = pytest.mark.skipif(OCTAVE is None, reason="no Octave (octave-cli) here")


def described(case: str) -> Description:
    return describe((make_ensemble(3) if case == "ensemble" else make_model(case))[0])


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest error over the largest value of its channel."""
    return float(np.max(np.abs(got - expected) / np.abs(expected).max(axis=0)))


@pytest.mark.parametrize(
    ("case", "dtype", "tolerance"),
    [*((case, np.float64, TOLERANCE) for case in ALL), *((case, np.float32, TOLERANCE_FLOAT) for case in FEW)],
)
def test_onnx_reproduces_the_interpreter(case, dtype, tolerance):
    onnxruntime = pytest.importorskip("onnxruntime")
    description = described(case)
    check, options = make_check(description, long_steps=False), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    models = to_onnx(description, dtype=dtype)
    runs = {key: onnxruntime.InferenceSession(m.SerializeToString(), options) for key, m in models.items()}
    u, dt = check.u.astype(dtype), np.diff(check.t).astype(dtype)[:, None]
    now = {"u": u} if description.nu else {}
    both = {"u": u[:-1], "u_next": u[1:]} if description.nu else {}
    x = [check.x[:1].astype(dtype)]
    for k in range(len(dt)):
        x += runs["step"].run(None, {"x": x[-1], "dt": dt[k : k + 1], **{n: v[k : k + 1] for n, v in both.items()}})
    states = np.concatenate(x)
    assert states.dtype == dtype
    assert error(states, check.x) <= tolerance
    assert error(runs["g"].run(None, {"x": states, **now})[0], check.y) <= tolerance
    slopes = interpreter.evaluate(description.f, check.x, check.u)
    assert error(runs["f"].run(None, {"x": check.x.astype(dtype), **now})[0], slopes) <= tolerance


@pytest.mark.parametrize("case", ALL)
def test_casadi_reproduces_the_interpreter_and_its_jacobians(case):
    casadi = pytest.importorskip("casadi")
    description = described(case)
    check, functions = make_check(description, long_steps=False), to_casadi(description)
    x = [check.x[0]]
    for k, dt in enumerate(np.diff(check.t)):
        x.append(np.asarray(functions["step"](x[-1], check.u[k], check.u[k + 1], dt)).ravel())
    assert error(np.array(x), check.x) <= TOLERANCE
    y = [np.asarray(functions["g"](*now)).ravel() for now in zip(x, check.u, strict=True)]
    assert error(np.array(y), check.y) <= TOLERANCE
    sx = functions["f"].sx_in()
    own = casadi.Function("A", sx, [casadi.jacobian(functions["f"](*sx), sx[0])])
    A, _ = interpreter.jacobian(description.f, x[3], check.u[3])
    np.testing.assert_allclose(np.asarray(own(x[3], check.u[3])), A, rtol=1e-12, atol=1e-12)


def verify(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run the command that the README gives."""
    program = [OCTAVE, "-q"] if name.endswith(".m") else [sys.executable]
    return subprocess.run([*program, str(folder / name)], capture_output=True, text=True)


@needs_octave
@pytest.mark.parametrize("case", FEW)
def test_octave_reproduces_the_interpreter(case, tmp_path):
    write_model((make_ensemble(3) if case == "ensemble" else make_model(case))[0], "matlab", tmp_path, name="plant")
    done = verify(tmp_path, "plant_check.m")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("to", "needed"), [("onnx", "onnxruntime"), ("casadi", "casadi"), ("matlab", None)])
def test_the_command_in_the_readme_verifies_and_finds_what_differs(to, needed, tmp_path):
    if needed is not None:
        pytest.importorskip(needed)
    elif OCTAVE is None:
        pytest.skip("no Octave (octave-cli) here")
    model, record = make_model("tanh")
    files = write_model(hostile(model, record), to, tmp_path, name="plant")
    assert {path.name for path in files} == {path.name for path in tmp_path.iterdir()}
    script = "plant_check.m" if to == "matlab" else "plant_check.py"
    assert script in (tmp_path / "README.md").read_text()
    done = verify(tmp_path, script)
    assert done.returncode == 0, done.stdout + done.stderr
    table = tmp_path / "check.csv"
    lines = table.read_text().splitlines()
    cells = lines[-1].split(",")
    lines[-1] = ",".join([*cells[:-1], repr(float(cells[-1]) * (1 + 1e-4))])
    table.write_text("\n".join(lines))
    assert verify(tmp_path, script).returncode == 1


@pytest.mark.parametrize(("to", "needed"), [("onnx", "onnxruntime"), ("casadi", "casadi"), ("matlab", None)])
def test_delays_are_said_and_verified(to, needed, tmp_path):
    if needed is not None:
        pytest.importorskip(needed)
    write_model(delayed()[0], to, tmp_path, name="plant")
    assert 'Inputs act late: "in 0 by 1.3 s, in 1 by 2.37 s"' in (tmp_path / "README.md").read_text()
    if to == "matlab" and OCTAVE is None:
        pytest.skip("no Octave (octave-cli) here")
    done = verify(tmp_path, "plant_check.m" if to == "matlab" else "plant_check.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_hostile_names_are_said_where_they_do_no_harm(tmp_path):
    model, record = make_model("tanh")
    write_model(hostile(model, record), "matlab", tmp_path, name="plant")
    text = (tmp_path / "plant_f.m").read_text("ascii")
    assert r'%   u(1): "\"; rm -rf \/ #"' in text
    pytest.importorskip("onnx")
    described_channels = to_onnx(describe(hostile(model, record)))["f"].doc_string
    assert f'y(2): "{HOSTILE[-1]}"' in described_channels


@pytest.mark.parametrize("case", FEW)
def test_python_control_has_the_equations_of_the_interpreter(case):
    pytest.importorskip("control")
    description = described(case)
    check, system = make_check(description, long_steps=False), to_control(description)
    u = check.u if description.nu else np.zeros((len(check.t), 1))  # python-control has one input at least
    slopes = interpreter.evaluate(description.f, check.x, check.u)
    for of, expected in ((system.dynamics, slopes), (system.output, check.y)):
        got = np.array([of(0.0, *now) for now in zip(check.x, u, strict=True)])
        assert error(got, expected) <= TOLERANCE
    if description.nu:
        linear = to_state_space(description, check.x[3], check.u[3])
        A, B = interpreter.jacobian(description.f, check.x[3], check.u[3])
        np.testing.assert_allclose(np.hstack([linear.A, linear.B]), np.hstack([A, B]), rtol=1e-12)


def test_functions_take_the_model_itself():
    """As `control` does; a description is what they have computed with before."""
    pytest.importorskip("control")
    pytest.importorskip("casadi")
    pytest.importorskip("onnx")
    model, record = make_model("tanh")
    x, u, description = np.full(3, 0.2), record.u[0], describe(model)
    assert describe(description) is description
    assert to_onnx(model)["f"] == to_onnx(description)["f"]
    slopes = [np.asarray(to_casadi(of)["f"](x, u)).ravel() for of in (model, description)]
    slopes += [to_control(of).dynamics(0.0, x, u) for of in (model, description)]
    assert all(error(slope, slopes[0]) <= TOLERANCE for slope in slopes)
    np.testing.assert_array_equal(to_state_space(model, x, u).A, to_state_space(description, x, u).A)


@pytest.mark.parametrize("case", ["cubic", "autonomous"])
def test_python_control_simulates_and_linearizes_the_same_system(case):
    control = pytest.importorskip("control")
    description = described(case)
    system = to_control(description)
    t = np.linspace(0.0, 4.0, 9)
    u = 3.0 + np.outer(np.sin(t), np.ones(description.nu))
    x0 = np.full(description.nx, 0.3)
    got = control.input_output_response(
        system, t, u.T, x0, solve_ivp_kwargs={"rtol": 1e-7, "atol": 1e-7}, return_x=True, squeeze=False
    )
    x, y = interpreter.simulate(replace(description, stepper=RK4, substeps=4), x0, u, t)
    # Inputs are interpolated by both, with kinks that python-control integrates across.
    np.testing.assert_allclose(got.states.T, x, atol=1e-4)
    np.testing.assert_allclose(got.outputs.T, y, atol=1e-4)
    if not description.nu:
        with pytest.raises(ConfigError, match="must have inputs"):
            to_state_space(description, x0, u[0])
        return
    linear, near = to_state_space(description, x0, u[0]), control.linearize(system, x0, u[0])
    np.testing.assert_allclose(linear.A, near.A, atol=1e-4)  # python-control takes differences
    np.testing.assert_allclose(linear.C, near.C, atol=1e-4)
    assert linear.input_labels == [f"in_{i}" for i in range(description.nu)]


@pytest.mark.parametrize(
    ("library", "make", "extra"),
    [("onnx", to_onnx, "export"), ("casadi", to_casadi, "export"), ("control", to_control, "control")],
)
def test_a_missing_library_is_named_with_its_remedy(library, make, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=f"need {library}.*tausid\\[{extra}\\]"):
        make(described("leaky"))
