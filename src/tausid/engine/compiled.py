"""Simulation of whole records and the normal equations of its error by the compiled library, in double precision.

Nothing here needs JAX. Buffers reach the library by ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tausid.engine.holds import hold_slopes
from tausid.engine.integrators import FixedStep
from tausid.engine.layout import Net, Numbers, Shape, plain, pointer
from tausid.engine.library import check, library, pick_isa
from tausid.engine.normal_equations import Normal
from tausid.engine.steppers import get_stepper
from tausid.shapes import Float


class _System(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("nx", "nu", "ny")),
        ("f", Net),
        ("g", Net),
        ("stages", ctypes.c_int),
        ("substeps", ctypes.c_int),
        *((name, Numbers) for name in ("a", "b", "c", "hold", "rate", "low", "high")),
    ]


class _Samples(ctypes.Structure):
    _fields_ = [
        ("records", ctypes.c_int64),
        ("lengths", Numbers),
        *((name, Numbers) for name in ("u", "y", "w", "dt")),
    ]


class _Sums(ctypes.Structure):
    _fields_ = [(name, Numbers) for name in ("cost", "H", "h", "G", "K", "k")]


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
        return cls(lengths, plain(np.concatenate(u)), np.where(known, together, 0.0), known.astype(float), steps)

    def weighted(self, factors: Float[np.ndarray, "N ny"]) -> Samples:
        """The same records with the error of each output times a factor."""
        return replace(self, w=self.w * factors)

    def cut(self, length: int) -> Samples:
        """The same samples as records of about this length at most, each with an initial state of its own."""
        parts = [np.diff(np.linspace(0, n, -(-n // length) + 1).astype(np.int64)) for n in self.lengths.tolist()]
        return replace(self, lengths=np.concatenate(parts))

    def residuals(self, y: Float[np.ndarray, "N ny"]) -> list[Float[np.ndarray, "_ ny"]]:
        """Simulated minus measured outputs of each record, weighted; NaN where nothing was measured."""
        errors = np.where(self.w > 0, self.w * (y - self.y), np.nan)
        return np.split(errors, np.cumsum(self.lengths)[:-1])

    @cached_property
    def as_struct(self) -> _Samples:
        """The records as the library sees them: it trusts their sizes."""
        N = int(self.lengths.sum())
        _check_shape("u", self.u, (N, *self.u.shape[1:]))
        _check_shape("y", self.y, (N, *self.y.shape[1:]))
        _check_shape("w", self.w, self.y.shape)
        _check_shape("dt", self.dt, (N,))
        lengths = np.ascontiguousarray(self.lengths, np.int64)
        arrays = [lengths, *(plain(a) for a in (self.u, self.y, self.w, self.dt))]
        struct = _Samples(len(lengths), *map(pointer, arrays))
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
        rates = tuple(np.asarray(rate, float).ravel().tolist())
        ends = None if limits is None else tuple(map(tuple, np.asarray(limits, float).tolist()))
        return _system(Shape.of(f), Shape.of(g), rates, ends, integrator)

    @property
    def nx(self) -> int:
        """Number of states."""
        return self.f.n_out

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return self.f.n_in - self.f.n_out

    @property
    def ny(self) -> int:
        """Number of outputs."""
        return self.g.n_out

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
        x, y = np.empty((N, self.nx)), np.empty((N, self.ny))
        self._run(theta, x0, samples, x, y)
        return x, y

    def outputs(
        self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], samples: Samples
    ) -> Float[np.ndarray, "N ny"]:
        """Outputs along records; NaN from where one has diverged."""
        y = np.empty((len(samples.u), self.ny))
        self._run(theta, x0, samples, None, y)
        return y

    def cost(self, theta: Float[np.ndarray, "P"], x0: Float[np.ndarray, "B nx"], samples: Samples) -> float:
        """The sum of squared errors; infinite where a simulation diverges."""
        return self._run(theta, x0, samples, None, None)

    def _run(self, theta: Any, x0: Any, samples: Samples, x: Any, y: Any) -> float:
        cost = ctypes.c_double()
        theta, x0 = self._checked(theta, x0, samples)
        failure = library().tausid_simulate(
            pick_isa(), self._struct, pointer(theta), pointer(x0), ctypes.byref(samples.as_struct), pointer(x),
            pointer(y), ctypes.byref(cost),
        )  # fmt: skip
        check(failure)
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
        theta, x0 = self._checked(theta, x0, samples)
        ends = [0, *accumulate((1, P, B * nx * P, B * nx * nx, B * nx))]
        H, numbers = np.empty((P, P)), np.zeros(ends[-1])  # the library fills H; the others are one allocation
        first = numbers.ctypes.data
        cost_at, *others_at = (first + numbers.itemsize * end for end in ends[:-1])
        sums = _Sums(cost_at, pointer(H), *others_at)
        failure = library().tausid_normal(
            pick_isa(), self._struct, threads, pointer(theta), pointer(x0), ctypes.byref(samples.as_struct),
            int(not only_states), ctypes.byref(sums),
        )  # fmt: skip
        check(failure)
        (cost,), h, G, K, k = (numbers[start:stop] for start, stop in pairwise(ends))
        return Normal(float(cost), H, G.reshape(B, nx, P), K.reshape(B, nx, nx), h, k.reshape(B, nx))

    def _checked(self, theta: Any, x0: Any, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Arrays as the library needs them: it trusts their sizes."""
        theta, x0 = plain(theta), plain(x0)
        _check_shape("theta", theta, (self.parameters,))
        _check_shape("x0", x0, (len(samples.lengths), self.nx))
        _check_shape("u", samples.u, (len(samples.u), self.nu))
        _check_shape("y", samples.y, (len(samples.y), self.ny))
        return theta, x0

    @cached_property
    def _struct(self) -> Any:
        _check_shape("rate", self.rate, (self.nx,))
        _check_shape("limits", self.limits, (self.ny, 2))
        tableau = get_stepper(self.integrator.stepper)
        stages = len(tableau.b)
        a = np.zeros((stages, stages))
        for i, row in enumerate(tableau.a):
            a[i, : len(row)] = row
        hold = np.array(hold_slopes(self.integrator.hold, self.nu), float)
        limits = plain(self.limits.T)
        arrays = (a, np.array(tableau.b), np.array(tableau.c), hold, plain(self.rate), limits[0], limits[1])
        struct = _System(
            self.nx, self.nu, self.ny, self.f.as_struct, self.g.as_struct, stages, self.integrator.substeps,
            *map(pointer, arrays),
        )  # fmt: skip
        struct.kept = arrays  # as long as the struct
        return ctypes.byref(struct)


@lru_cache(maxsize=128)
def _system(
    f: Shape, g: Shape, rates: tuple[float, ...], limits: tuple[tuple[float, float], ...] | None, integrator: FixedStep
) -> System:
    """The system of these sizes: models that differ in nothing but their weights have one together."""
    rate = np.broadcast_to(np.array(rates), (f.n_out,)).copy()
    given = np.array([[-np.inf, np.inf]] * g.n_out) if limits is None else np.array(limits)
    return System(f, g, rate, given, integrator)


def _check_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}; got {array.shape}")


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
        """Simulated minus measured outputs of each record, weighted; NaN where nothing was measured."""
        return self.samples.residuals(self.system.outputs(theta, x0, self.samples))

    def weighted(self, factors: Float[np.ndarray, "N ny"]) -> CompiledError:
        """The same error with each of these residuals times a positive factor."""
        return replace(self, samples=self.samples.weighted(factors))

    def cut(self, length: int) -> CompiledError:
        """The same error over stretches of about this length at most, each with an initial state of its own."""
        return replace(self, samples=self.samples.cut(length))


class OneStep:
    """One step of a system, in normalized units; buffers and pointers are made once, so that it takes microseconds.

    Set `x[0]`, both rows of `u` and `dt[0]`; a call fills `x[1]`, and `y` at both ends.
    """

    def __init__(self, system: System, theta: Float[np.ndarray, "P"]) -> None:
        nx, nu, ny = system.nx, system.nu, system.ny
        self.x, self.u, self.y, self.dt = np.zeros((2, nx)), np.zeros((2, nu)), np.zeros((2, ny)), np.zeros(2)
        nothing = np.zeros((2, ny))
        samples = Samples(np.array([2]), self.u, nothing, nothing, self.dt)
        weights, _ = system._checked(theta, self.x[:1], samples)
        cost = ctypes.c_double()
        self._kept = system, samples, weights, cost
        addresses = [system._struct, pointer(weights), pointer(self.x), ctypes.byref(samples.as_struct)]
        addresses += [pointer(self.x), pointer(self.y), ctypes.byref(cost)]
        self._arguments = ctypes.c_int(pick_isa()), *(ctypes.cast(a, ctypes.c_void_p) for a in addresses)
        self._simulate = library().tausid_simulate

    def __call__(self) -> None:
        """Take the step; NaN where it diverged."""
        check(self._simulate(*self._arguments))


def simulate(
    f: Any, g: Any, rate: Any, limits: Any, integrator: FixedStep, x0: Any, u: Any, dt: Any
) -> tuple[Float[np.ndarray, "N nx"], Float[np.ndarray, "N ny"]]:
    """States and outputs of one trajectory; NaN from where it has diverged."""
    system = System.of(f, g, rate, limits, integrator)
    nothing = np.zeros((len(u), system.ny))  # measured
    steps = np.append(np.asarray(dt, float), 0.0)
    samples = Samples(np.array([len(u)]), np.asarray(u, float), nothing, nothing, steps)
    return system.simulate(system.pack(f, g), np.asarray(x0, float)[None], samples)
