"""The compiled engine called with arrays that do not belong together: an error in words, and nothing is written."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tausid.engine import fused, library
from tausid.engine.choice import MAX_THREADS, Engine
from tausid.engine.fused import fused_missing
from tausid.errors import ConfigError

pytestmark = pytest.mark.skipif(fused_missing() is not None, reason=f"the fused engine is missing: {fused_missing()}")

J, B, NX, NU, HIDDEN, STAGES, SUBSTEPS = 4, 5, 3, 2, (7, 6), 2, 3
PLAIN = library.INSTRUCTION_SETS.index("plain")
WEIGHTS = {"W1": (7, NX + NU), "b1": (7,), "W2": (6, 7), "b2": (6,), "F": (NX, 6 + NX + NU)}
START = {"x0": (B, NX), "u": (J, B, NU), "dt": (J - 1, B)}
NETWORK = {"isa": PLAIN, "threads": 2, "activation": 2}
ROLLOUT = {**NETWORK, "substeps": SUBSTEPS, "a": [0, 0, 0.5, 0], "b": [0, 1], "c": [0, 0.5], "hold": [0, 1, 0]}


def kept(rows: int) -> tuple[int]:
    lanes = library.library().tausid_lanes(PLAIN, 4)
    return (-(-B // lanes) * lanes * rows,)


def right_call(target: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Shapes of the arguments, shapes of the results, attributes."""
    block = NX + NU + HIDDEN[1]
    if target.startswith("rollout"):
        attributes, before, x = ROLLOUT, {**START, **WEIGHTS}, (J, B, NX)
        room = kept(STAGES * (block + NX) * SUBSTEPS * (J - 1))
        behind = {"x": x, "kept": room, "grad_x": x}
    else:
        attributes, before, x = NETWORK, {"z": (B, NX + NU), **WEIGHTS}, (B, NX)
        room = kept(block)
        behind = {"kept": room, "grad_y": x}
    if target.endswith("forward"):
        return before, {"to value": x, "to kept": room}, dict(attributes)
    return {**before, **behind}, {f"to {name}": shape for name, shape in before.items()}, dict(attributes)


def call(target: str, changes: dict[str, Any], dtype: str = "f32") -> list[Any]:
    """The right call with some of its shapes and attributes replaced, or left out where they are None."""
    parts = right_call(target)
    for name, value in changes.items():
        part = next((part for part in parts if name in part), parts[0])
        part[name] = value
    arrays, results, attributes = ({k: v for k, v in part.items() if v is not None} for part in parts)
    values = [jnp.zeros(shape, jnp.float32) for shape in arrays.values()]
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in results.values()]
    typed = {k: np.asarray(v, float) if isinstance(v, list) else np.int64(v) for k, v in attributes.items()}
    return jax.block_until_ready(jax.ffi.ffi_call(f"tausid_{target}_{dtype}", shapes)(*values, **typed))


TARGETS = ("rollout_forward", "rollout_backward", "network_forward", "network_backward")


@pytest.mark.parametrize("target", TARGETS)
def test_right_call_is_answered(target):
    kept_name = "to kept" if target.endswith("forward") else "kept"
    for changes in ({}, {kept_name: (0,)}):
        assert all(np.isfinite(result).all() for result in call(target, changes)[:1])


NOT_EXPLICIT = "`a` must be zero on and above its diagonal"
MATRIX = "`W2` must have shape (width, n_in = 7)"
# fmt: off
WRONG = [
    # ranks and sizes of what goes in
    ("rollout_forward", {"u": (J, B)}, "`u` must have shape (J, B, nu); got (4, 5)"),
    ("rollout_forward", {"u": (J, B + 1, NU)}, "`x0` must have shape (B = 6, nx = 3); got (5, 3)"),
    ("rollout_forward", {"u": (0, B, NU)}, "`J` must be 1 to"),
    ("rollout_forward", {"u": (J, B, NU + 1)}, "`W1` must take nx + nu = 6 inputs; got 5"),
    ("rollout_forward", {"x0": (B * NX,)}, "`x0` must have shape (B = 5, nx = 3); got (15)"),
    ("rollout_forward", {"x0": (B, NX + 1)}, "`x0` must have shape (B = 5, nx = 3); got (5, 4)"),
    ("rollout_forward", {"dt": (J - 1, 1)}, "`dt` must have shape (J - 1 = 3, B = 5); got (3, 1)"),
    ("rollout_forward", {"dt": (J, B)}, "`dt` must have shape (J - 1 = 3, B = 5); got (4, 5)"),
    ("rollout_backward", {"x": (J - 1, B, NX)}, "`x` must have shape (J = 4, B = 5, nx = 3); got (3, 5, 3)"),
    ("rollout_backward", {"grad_x": (J, B)}, "`grad_x` must have shape (J = 4, B = 5, nx = 3); got (4, 5)"),
    ("network_forward", {"z": (B, NX)}, "`z` must have shape (N, n_in = 5); got (5, 3)"),
    ("network_backward", {"grad_y": (B + 1, NX)}, "`grad_y` must have shape (N = 5, n_out = 3); got (6, 3)"),
    # weights
    ("rollout_forward", {"W1": (7,)}, "`W1` must have shape (width, n_in); got (7)"),
    ("rollout_forward", {"W1": (7, 6)}, "`F` must have shape (n_out, width + n_in = 12); got (3, 11)"),
    ("rollout_forward", {"W2": (6, 8)}, f"{MATRIX}; got (6, 8)"),
    ("network_backward", {"W2": (6, 7, 1)}, f"{MATRIX}; got (6, 7, 1)"),
    ("network_forward", {"b1": (6,)}, "`b1` must have shape (width = 7); got (6)"),
    ("network_forward", {"b2": (6, 1)}, "`b2` must have shape (width = 6); got (6, 1)"),
    ("network_forward", {"F": (NX, 6)}, "`F` must have shape (n_out, width + n_in = 11); got (3, 6)"),
    ("network_forward", {"W1": (0, 5), "b1": (0,), "W2": (6, 0)}, "`width` must be 1 to 65536; got 0"),
    ("network_forward", {"W1": (70_000, 5), "b1": (70_000,)}, "`width` must be 1 to 65536; got 70000"),
    ("rollout_forward", {"F": None}, "weights must be W1, b1, ..., F; got 4 of them"),
    ("network_forward", {"W3": (1,), "b3": (1,), "W4": (1,), "b4": (1,), "W5": (1,), "b5": (1,)},
     "`number of hidden layers` must be 1 to 4; got 5"),
    ("network_backward", dict.fromkeys(["z", *WEIGHTS]), "`number of hidden layers` must be 1 to 4; got 0"),
    # what comes out
    ("rollout_forward", {"to value": (J, B)}, "`x` must have shape (J = 4, B = 5, nx = 3); got (4, 5)"),
    ("rollout_forward", {"to value": (J - 1, B, NX)}, "`x` must have shape (J = 4, B = 5, nx = 3); got (3, 5, 3)"),
    ("rollout_forward", {"to kept": None}, "`number of results` must be 2; got 1"),
    ("network_forward", {"to value": (B - 1, NX)}, "`y` must have shape (N = 5, n_out = 3); got (4, 3)"),
    ("rollout_backward", {"to F": None}, "`number of results` must be 8; got 7"),
    ("rollout_backward", {"to u": (J, B)}, "gradient 1 must have its argument's type and shape (4, 5, 2); got (4, 5)"),
    ("network_backward", {"to W1": (7, 4)}, "gradient 1 must have its argument's type and shape (7, 5); got (7, 4)"),
    # what is kept
    ("rollout_forward", {"to kept": (1,)}, "`kept` must be empty or have 252 numbers a trajectory"),
    ("rollout_forward", {"to kept": (2, 2)}, "`kept` must have shape (n); got (2, 2)"),
    ("rollout_backward", {"kept": (B * 252 - 1,)}, "`kept` must be empty or have 252 numbers a trajectory"),
    ("network_forward", {"to kept": (B * 11 - 1,)}, "`kept` must be empty or have 11 numbers a trajectory"),
    ("network_backward", {"kept": (7,)}, "`kept` must be empty or have 11 numbers a trajectory"),
    # tableau and hold
    ("rollout_forward", {"a": [0.0, 0.0, 0.5]}, "`a` must have 4 numbers; got 3"),
    ("rollout_forward", {"c": [0.0]}, "`c` must have 2 numbers; got 1"),
    ("rollout_forward", {"b": [1.0] * 17}, "`number of stages` must be 1 to 16; got 17"),
    ("rollout_forward", {"a": [0.5, 0.0, 0.5, 0.0]}, NOT_EXPLICIT),
    ("rollout_backward", {"a": [0.0, 0.5, 0.5, 0.0]}, NOT_EXPLICIT),
    ("rollout_backward", {"b": [0.0, np.nan]}, "`b` must be finite"),
    ("rollout_forward", {"c": [0.0, np.inf]}, "`c` must be finite"),
    ("rollout_forward", {"hold": [0.0, 0.0]}, "`hold` must have 3 numbers; got 2"),
    ("rollout_forward", {"hold": [0.0, np.nan, 0.0]}, "`hold` must be finite"),
    # numbers
    ("rollout_forward", {"substeps": 0}, "`substeps` must be 1 to 1048576; got 0"),
    ("rollout_forward", {"substeps": 2**32 + 1}, "`substeps` must be 1 to 1048576; got 4294967297"),
    ("rollout_forward", {"threads": 0}, "`threads` must be 1 to 1024; got 0"),
    ("network_backward", {"threads": 2**40}, "`threads` must be 1 to 1024; got 1099511627776"),
    ("network_forward", {"activation": 5}, "`activation` must be 0 to 4; got 5"),
    ("rollout_backward", {"activation": -1}, "`activation` must be 0 to 4; got -1"),
    ("rollout_forward", {"isa": 3}, "`isa` must be 0 to 2; got 3"),
    ("network_forward", {"isa": -1}, "`isa` must be 0 to 2; got -1"),
]
# fmt: on


@pytest.mark.parametrize(("target", "changes", "message"), WRONG)
def test_wrong_call_is_refused(target, changes, message):
    with pytest.raises(jax.errors.JaxRuntimeError, match=re.escape(f"tausid fused engine: {message}")):
        call(target, changes)


@pytest.mark.parametrize("target", TARGETS)
def test_other_type_is_refused(target):
    with pytest.raises(jax.errors.JaxRuntimeError, match="`W1` must be of type float64"):
        call(target, {}, "f64")


def test_names_of_numbers_agree():
    """A number that Python may send, the library knows, and the other way round."""
    for name in ("threads", "activation"):
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            call("network_forward", {name: -1})
        most = int(re.search(r"to (\d+); got", str(caught.value)).group(1))  # type: ignore[union-attr]
        assert most == {"threads": MAX_THREADS, "activation": len(fused.FUSED_ACTIVATIONS) - 1}[name]
    with pytest.raises(ConfigError, match="`threads` must be 1 to 1024; got 1025"):
        Engine(threads=MAX_THREADS + 1)


def test_too_much_memory_is_an_error():
    """More than a processor can address, whatever the system promises."""
    wide = {"W1": (64, 5), "b1": (64,), "W2": (60_000, 64), "b2": (60_000,), "F": (NX, 60_005)}
    many = {"a": [0.0] * 256, "b": [0.0] * 16, "c": [0.0] * 16, "substeps": 2**20}
    with pytest.raises(jax.errors.JaxRuntimeError, match="tausid fused engine: out of memory"):
        call("rollout_forward", {**wide, **many, "to kept": (0,)})


@pytest.mark.skipif(sys.platform != "linux", reason="limits its own memory by Linux's /proc")
def test_thread_that_cannot_start_is_an_error():
    """The stacks of a thousand threads do not fit; those that were started are waited for."""
    code = """
import pathlib, resource
import jax, jax.numpy as jnp, numpy as np
from tausid.engine import fused, library
z, w, b, last = jnp.ones((64 * 1024, 1)), jnp.ones((1, 1)), jnp.ones(1), jnp.ones((1, 2))
run = jax.jit(fused._network, static_argnums=0)
one, many = (fused._NetworkCall(isa=2, threads=threads, activation=0) for threads in (1, 1024))
assert fused.fused_missing() is None
wanted = np.asarray(run(one, z, w, b, last))
compiled = run.lower(many, z, w, b, last).compile()
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
try:
    np.asarray(compiled(z, w, b, last))
except jax.errors.JaxRuntimeError as error:
    print(error)
assert (np.asarray(run(one, z, w, b, last)) == wanted).all()
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert "tausid fused engine: a thread cannot be started" in out.stdout
