"""Simulation of whole records and the normal equations of its error by the compiled library, in double precision.

Nothing here needs JAX. Buffers reach the library by ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np

from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import FixedStep
from tausid.engine.normal_equations import Normal
from tausid.engine.steppers import get_stepper
from tausid.errors import ConfigError, unknown_name
from tausid.shapes import Float

# In the library's order.
INSTRUCTION_SETS = ("avx512", "avx2", "plain")
ACTIVATIONS = ("leaky_relu", "relu", "tanh", "elu", "sigmoid", "softplus")
MAX_LAYERS, MAX_DEGREE = 4, 8
_FAILURES = {1: "sizes out of range", 2: "too little memory", 3: "the processor lacks its instructions"}

_Numbers = ctypes.c_void_p


class _Net(ctypes.Structure):
    _fields_ = [
        ("n_in", ctypes.c_int),
        ("n_out", ctypes.c_int),
        ("layers", ctypes.c_int),
        ("width", ctypes.c_int * MAX_LAYERS),
        ("activation", ctypes.c_int),
        ("monomials", ctypes.c_int),
        ("degree", ctypes.c_int),
        ("factors", _Numbers),
        ("bias", ctypes.c_int),
    ]


class _System(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("nx", "nu", "ny")),
        ("f", _Net),
        ("g", _Net),
        ("stages", ctypes.c_int),
        ("substeps", ctypes.c_int),
        *((name, _Numbers) for name in ("a", "b", "c", "hold", "rate", "low", "high")),
    ]


class _Samples(ctypes.Structure):
    _fields_ = [
        ("records", ctypes.c_int64),
        ("lengths", _Numbers),
        *((name, _Numbers) for name in ("u", "y", "w", "dt")),
    ]


class _Sums(ctypes.Structure):
    _fields_ = [(name, _Numbers) for name in ("cost", "H", "h", "G", "K", "k")]


def missing() -> str | None:
    """Why the library cannot be used here, in words."""
    if os.environ.get("TAUSID_NO_FUSED", "0") not in ("", "0"):
        return "the environment sets TAUSID_NO_FUSED"
    loaded = _load()
    return loaded if isinstance(loaded, str) else None


def why_not(*networks: Any) -> str | None:
    """Why the library does not support networks, in words."""
    for network in networks:
        if len(network.biases) > MAX_LAYERS:
            return f"networks must have at most {MAX_LAYERS} hidden layers; got {len(network.biases)}"
        if network.biases and network.activation not in ACTIVATIONS:
            return f"the activation must be one of {', '.join(ACTIVATIONS)}; got {network.activation}"
        if network.coefficients is not None and network.degree > MAX_DEGREE:
            return f"polynomials must have at most degree {MAX_DEGREE}; got {network.degree}"
    return None


@dataclass(frozen=True)
class Shape:
    """The sizes of a network, which decide where its weights lie in the vector of parameters.

    For each output the row [linear, hidden, monomials, bias] of the last layer; then for each hidden layer the weights
    of each of its inputs, and its biases.

    Args:
        n_in: inputs.
        n_out: outputs.
        hidden: widths of the hidden layers.
        activation: of the hidden layers.
        degree: highest degree of the monomials; 0 for none.
        bias: whether there is a constant.
    """

    n_in: int
    n_out: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    degree: int = 0
    bias: bool = True

    @classmethod
    def of(cls, network: Any) -> Shape:
        """The sizes of a network."""
        degree = 0 if network.coefficients is None else network.degree
        hidden = tuple(len(bias) for bias in network.biases)
        n_out, n_in = network.linear.shape
        return cls(n_in, n_out, hidden, network.activation if hidden else "tanh", degree, network.bias is not None)

    @cached_property
    def factors(self) -> np.ndarray:
        """Which inputs each monomial multiplies, -1 for no further one; shape (monomials, degree)."""
        rows = [
            [*indices, *[-1] * (self.degree - d)]
            for d in range(2, self.degree + 1)
            for indices in combinations_with_replacement(range(self.n_in), d)
        ]
        return np.array(rows, np.int32).reshape(len(rows), self.degree)

    @cached_property
    def features(self) -> int:
        """What the last layer sees."""
        return self.n_in + (self.hidden[-1] if self.hidden else 0) + len(self.factors) + self.bias

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        """Where each kind of weight lies: `linear`, `bias`, `readout` (of hidden units), `coefficients`, `hidden`."""
        last = np.arange(self.n_out * self.features).reshape(self.n_out, self.features)
        ends = np.cumsum([self.n_in, self.hidden[-1] if self.hidden else 0, len(self.factors), self.bias])
        names = ("linear", "readout", "coefficients", "bias")
        parts = dict(zip(names, (part.ravel() for part in np.split(last, ends[:-1], axis=1)), strict=True))
        return {**parts, "hidden": np.arange(last.size, self.parameters)}

    @cached_property
    def parameters(self) -> int:
        """The number of weights."""
        layers = pairwise((self.n_in, *self.hidden))
        return self.n_out * self.features + sum((n_in + 1) * width for n_in, width in layers)

    def pack(self, network: Any) -> Float[np.ndarray, "P"]:
        """The weights of a network as one vector."""
        last = [network.linear]
        last += [network.weights[-1]] if self.hidden else []
        last += [network.coefficients] if self.degree else []
        last += [np.asarray(network.bias)[:, None]] if self.bias else []
        layers = zip(network.weights[:-1], network.biases, strict=True) if self.hidden else ()
        pieces = [np.concatenate([np.asarray(part, float) for part in last], axis=1).ravel()]
        pieces += [np.concatenate([np.asarray(W, float).T, np.asarray(b, float)[None]]).ravel() for W, b in layers]
        return np.concatenate(pieces)

    def unpack(self, theta: Float[np.ndarray, "P"], network: Any) -> Any:
        """The network with other weights, from one vector."""
        last = theta[: self.n_out * self.features].reshape(self.n_out, self.features)
        ends = np.cumsum([self.n_in, self.hidden[-1] if self.hidden else 0, len(self.factors)])
        linear, readout, coefficients, bias = np.split(last, ends, axis=1)
        at, weights, biases = last.size, [], []
        for n_in, width in pairwise((self.n_in, *self.hidden)):
            layer = theta[at : at + (n_in + 1) * width].reshape(n_in + 1, width)
            weights.append(layer[:-1].T.copy())
            biases.append(layer[-1].copy())
            at += layer.size
        return dataclasses.replace(
            network,
            linear=linear.copy(),
            weights=(*weights, readout.copy()) if self.hidden else (),
            biases=tuple(biases),
            bias=bias[:, 0].copy() if self.bias else None,
            coefficients=coefficients.copy() if self.degree else None,
        )

    @cached_property
    def as_struct(self) -> _Net:
        """The sizes as the library sees them."""
        return _Net(
            self.n_in,
            self.n_out,
            len(self.hidden),
            (ctypes.c_int * MAX_LAYERS)(*self.hidden),
            ACTIVATIONS.index(self.activation),
            len(self.factors),
            self.degree,
            _pointer(self.factors),
            int(self.bias),
        )


@dataclass(frozen=True, eq=False)
class Samples:
    """Records one after the other, in normalized units.

    Args:
        lengths: samples of each record.
        u: inputs.
        y: outputs; what is not measured may have any number.
        w: how much the error of each output counts; zero where it is not measured.
        dt: time to the next sample in seconds; that of the last sample of a record is not used.
    """

    lengths: np.ndarray
    u: Float[np.ndarray, "N nu"]
    y: Float[np.ndarray, "N ny"]
    w: Float[np.ndarray, "N ny"]
    dt: Float[np.ndarray, "N"]

    @classmethod
    def join(cls, u: Sequence[np.ndarray], y: Sequence[np.ndarray], dt: Sequence[np.ndarray]) -> Samples:
        """Records with NaN where nothing was measured; every measured output counts once."""
        together = np.concatenate(y)
        known = ~np.isnan(together)
        steps = np.concatenate([np.append(step, 0.0) for step in dt])
        lengths = np.array([len(part) for part in u], np.int64)
        return cls(lengths, _plain(np.concatenate(u)), np.where(known, together, 0.0), known.astype(float), steps)

    @cached_property
    def as_struct(self) -> _Samples:
        """The records as the library sees them."""
        lengths = np.ascontiguousarray(self.lengths, np.int64)
        arrays = [lengths, *(_plain(a) for a in (self.u, self.y, self.w, self.dt))]
        struct = _Samples(len(lengths), *map(_pointer, arrays))
        struct.kept = arrays  # as long as the struct
        return struct


@dataclass(frozen=True, eq=False)
class System:
    """`dx/dt = rate f(x, u)`, `y = g(x, u)` within limits, for any parameters.

    Args:
        f: sizes of the state network.
        g: sizes of the output network.
        rate: 1/tau of each state, in 1/s.
        limits: lowest and highest value of each output; infinite where there is none.
        integrator: how it is integrated.
    """

    f: Shape
    g: Shape
    rate: Float[np.ndarray, "nx"]
    limits: Float[np.ndarray, "ny 2"]
    integrator: FixedStep

    @classmethod
    def of(cls, f: Any, g: Any, rate: Any, limits: Any, integrator: FixedStep) -> System:
        """The system of two networks; `rate` may be one for all states, `limits` None."""
        shape_f, shape_g = Shape.of(f), Shape.of(g)
        nx, ny = shape_f.n_out, shape_g.n_out
        given = np.array([[-np.inf, np.inf]] * ny) if limits is None else np.asarray(limits, float)
        return cls(shape_f, shape_g, np.broadcast_to(np.asarray(rate, float), (nx,)).copy(), given, integrator)

    @property
    def nx(self) -> int:
        """Number of states."""
        return self.f.n_out

    @cached_property
    def parameters(self) -> int:
        """Number of parameters of both networks."""
        return self.f.parameters + self.g.parameters

    def pack(self, f: Any, g: Any) -> Float[np.ndarray, "P"]:
        """The weights of both networks as one vector."""
        return np.concatenate([self.f.pack(f), self.g.pack(g)])

    def unpack(self, theta: Float[np.ndarray, "P"], f: Any, g: Any) -> tuple[Any, Any]:
        """Both networks with other weights."""
        return self.f.unpack(theta[: self.f.parameters], f), self.g.unpack(theta[self.f.parameters :], g)

    def simulate(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], samples: Samples
    ) -> tuple[Float[np.ndarray, "N nx"], Float[np.ndarray, "N ny"]]:
        """States and outputs along records; NaN from where one has diverged."""
        N = len(samples.u)
        x, y = np.empty((N, self.nx)), np.empty((N, self.g.n_out))
        self._run(theta, x0, samples, x, y)
        return x, y

    def cost(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], samples: Samples) -> float:
        """The sum of squared errors; infinite where a simulation diverges."""
        return self._run(theta, x0, samples, None, None)

    def _run(self, theta: Any, x0: Any, samples: Samples, x: Any, y: Any) -> float:
        cost = ctypes.c_double()
        theta, x0 = self._checked(theta, x0, samples)
        failure = _library().tausid_simulate(
            _pick_isa(), self._struct, _pointer(theta), _pointer(x0), ctypes.byref(samples.as_struct), _pointer(x),
            _pointer(y), ctypes.byref(cost),
        )  # fmt: skip
        _check(failure)
        return cost.value

    def normal(
        self,
        theta: Float[np.ndarray, "P"],
        x0: Float[np.ndarray, "B nx"],
        samples: Samples,
        *,
        only_states: bool = False,
        threads: int = 1,
    ) -> Normal:
        """The normal equations at a point; those of theta are empty where `only_states` are asked for."""
        B, nx, P = len(samples.lengths), self.nx, 0 if only_states else self.parameters
        cost, arrays = np.zeros(1), [np.zeros(s) for s in ((P, P), (P,), (B, nx, P), (B, nx, nx), (B, nx))]
        theta, x0 = self._checked(theta, x0, samples)
        sums = _Sums(*map(_pointer, (cost, *arrays)))
        failure = _library().tausid_normal(
            _pick_isa(), self._struct, threads, _pointer(theta), _pointer(x0), ctypes.byref(samples.as_struct),
            int(not only_states), ctypes.byref(sums),
        )  # fmt: skip
        _check(failure)
        H, h, G, K, k = arrays
        return Normal(float(cost[0]), H, G, K, h, k)

    def _checked(self, theta: Any, x0: Any, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Arrays as the library needs them: it trusts their sizes."""
        theta, x0, N = _plain(theta), _plain(x0), int(samples.lengths.sum())
        expected = {
            "theta": (theta, (self.parameters,)),
            "x0": (x0, (len(samples.lengths), self.nx)),
            "u": (samples.u, (N, self.f.n_in - self.nx)),
            "y": (samples.y, (N, self.g.n_out)),
            "w": (samples.w, (N, self.g.n_out)),
            "dt": (samples.dt, (N,)),
            "rate": (self.rate, (self.nx,)),
            "limits": (self.limits, (self.g.n_out, 2)),
        }
        for name, (array, shape) in expected.items():
            if array.shape != shape:
                raise ValueError(f"`{name}` must have shape {shape}; got {array.shape}")
        return theta, x0

    @cached_property
    def _struct(self) -> Any:
        tableau = get_stepper(self.integrator.stepper)
        stages, nu = len(tableau.b), self.f.n_in - self.nx
        a = np.zeros((stages, stages))
        for i, row in enumerate(tableau.a):
            a[i, : len(row)] = row
        hold = np.array(hold_slopes(self.integrator.hold, nu), float)
        limits = _plain(self.limits.T)
        arrays = (a, np.array(tableau.b), np.array(tableau.c), hold, _plain(self.rate), limits[0], limits[1])
        struct = _System(
            self.nx, nu, self.g.n_out, self.f.as_struct, self.g.as_struct, stages, self.integrator.substeps,
            *map(_pointer, arrays),
        )  # fmt: skip
        struct.kept = arrays  # as long as the struct
        return ctypes.byref(struct)


@dataclass(frozen=True, eq=False)
class CompiledError:
    """The squared simulation error of a system over records; the contract is `SquaredError`.

    Args:
        system: the equations.
        samples: the records.
    """

    system: System
    samples: Samples

    def cost(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]) -> float:
        """The sum of squares; infinite where a simulation diverges."""
        return self.system.cost(theta, x0, self.samples)

    def normal(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], *, only_states: bool = False
    ) -> Normal:
        """The normal equations; those of theta are empty where `only_states` are asked for."""
        return self.system.normal(theta, x0, self.samples, only_states=only_states)

    def states(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]) -> Float[np.ndarray, "N nx"]:
        """States at the points of all records, one after the other; NaN from where one has diverged."""
        return self.system.simulate(theta, x0, self.samples)[0]

    def residuals(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"]
    ) -> list[Float[np.ndarray, "_ ny"]]:
        """Simulated minus measured outputs of each record; NaN where nothing was measured."""
        y = self.system.simulate(theta, x0, self.samples)[1]
        errors = np.where(self.samples.w > 0, y - self.samples.y, np.nan)
        return np.split(errors, np.cumsum(self.samples.lengths)[:-1])


def simulate(
    f: Any, g: Any, rate: Any, limits: Any, integrator: FixedStep, x0: Any, u: Any, dt: Any
) -> tuple[Float[np.ndarray, "N nx"], Float[np.ndarray, "N ny"]]:
    """States and outputs of one trajectory; NaN from where it has diverged."""
    system = System.of(f, g, rate, limits, integrator)
    samples = Samples.join([np.asarray(u, float)], [np.full((len(u), system.g.n_out), np.nan)], [np.asarray(dt, float)])
    return system.simulate(system.pack(f, g), np.asarray(x0, float)[None], samples)


def state_equations(
    f: Any, g: Any, rate: Any, limits: Any, integrator: FixedStep, x0: Any, u: Any, y: Any, dt: Any
) -> tuple[float, Float[np.ndarray, "nx nx"], Float[np.ndarray, "nx"]]:
    """The sum of squared errors of one trajectory, and `J'J` and `J'r` in its initial state."""
    system = System.of(f, g, rate, limits, integrator)
    samples = Samples.join([np.asarray(u, float)], [np.asarray(y, float)], [np.asarray(dt, float)])
    found = system.normal(system.pack(f, g), np.asarray(x0, float)[None], samples, only_states=True)
    return found.cost, found.K[0], found.k[0]


def instruction_sets() -> tuple[str, ...]:
    """The instruction sets that the library and this processor share, fastest first."""
    library = _load()
    if isinstance(library, str):
        return ()
    return tuple(name for i, name in enumerate(INSTRUCTION_SETS) if library.tausid_lanes(i, 8) > 0)


def _plain(array: Any) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=float)


def _pointer(array: np.ndarray | None) -> int | None:
    return None if array is None else array.__array_interface__["data"][0]


def _check(failure: int) -> None:
    if failure == 2:
        raise MemoryError("the compiled engine has too little memory")
    if failure:
        raise RuntimeError(f"the compiled engine refuses a call: {_FAILURES[failure]}")


@cache
def _load() -> ctypes.CDLL | str:
    spec = find_spec("tausid.engine._fused")
    if spec is None or spec.origin is None:
        return "it was not compiled when tausid was installed (no C++ compiler was found); reinstall with one"
    try:
        library = ctypes.CDLL(spec.origin)
        library.tausid_simulate.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 7]
        library.tausid_normal.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 3,
                                          ctypes.c_int, ctypes.c_void_p]  # fmt: skip
    except (OSError, AttributeError) as error:
        return f"its library {spec.origin} cannot be used: {error}"
    return library


def _library() -> ctypes.CDLL:
    loaded = _load()
    if isinstance(loaded, str):
        raise ConfigError(f"the compiled engine must be available; it is not: {loaded}.")
    return loaded


@cache
def _pick_isa() -> int:
    known = instruction_sets()
    name = os.environ.get("TAUSID_FUSED_ISA") or known[0]
    if name not in known:
        raise ConfigError(unknown_name("TAUSID_FUSED_ISA", name, known))
    return INSTRUCTION_SETS.index(name)
