"""The compiled library: where it is, why it cannot be used, and which of its instruction sets this processor has.

Environment: `TAUSID_NO_FUSED=1` does as if it were missing; `TAUSID_FUSED_ISA=avx512|avx2|plain` forces an instruction
set.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.util import find_spec

from tausid.errors import ConfigError, unknown_name

# In the order of the numbers in csrc; the first one that the processor has is taken.
INSTRUCTION_SETS = ("avx512", "avx2", "plain")
_FAILURES = {1: "sizes out of range", 3: "the processor lacks its instructions"}


def missing() -> str | None:
    """Why the library cannot be used here, in words."""
    if os.environ.get("TAUSID_NO_FUSED", "0") not in ("", "0"):
        return "the environment sets TAUSID_NO_FUSED"
    loaded = load()
    return loaded if isinstance(loaded, str) else None


@cache
def load() -> ctypes.CDLL | str:
    """The library, or why there is none."""
    spec = find_spec("tausid.engine._fused")
    if spec is None or spec.origin is None:
        return "it was not compiled when tausid was installed (no C++ compiler was found); reinstall with one"
    try:
        library = ctypes.CDLL(spec.origin)
        library.tausid_simulate.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 7]
        library.tausid_normal.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 3,
                                          ctypes.c_int, ctypes.c_void_p]  # fmt: skip
        library.tausid_recursion.argtypes = [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 4]
    except (OSError, AttributeError) as error:
        return f"its library {spec.origin} cannot be used: {error}"
    return library


def library() -> ctypes.CDLL:
    """The library; an error where there is none."""
    loaded = load()
    if isinstance(loaded, str):
        raise ConfigError(f"the compiled engine must be available; it is not: {loaded}.")
    return loaded


def check(failure: int) -> None:
    """Raise what a call of the library returned."""
    if failure == 2:
        raise MemoryError("the compiled engine has too little memory")
    if failure:
        raise RuntimeError(f"the compiled engine refuses a call: {_FAILURES[failure]}")


def instruction_sets() -> tuple[str, ...]:
    """The instruction sets that the library and this processor share, fastest first."""
    loaded = load()
    if isinstance(loaded, str):
        return ()
    return tuple(name for i, name in enumerate(INSTRUCTION_SETS) if loaded.tausid_lanes(i, 8) > 0)


def pick_isa() -> int:
    """The number of the instruction set to take."""
    return _number_of(os.environ.get("TAUSID_FUSED_ISA"))


@cache
def _number_of(asked: str | None) -> int:
    known = instruction_sets()
    name = asked or known[0]
    if name not in known:
        raise ConfigError(unknown_name("TAUSID_FUSED_ISA", name, known))
    return INSTRUCTION_SETS.index(name)
