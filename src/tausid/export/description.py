"""A model as plain arrays and two short lists of operations: all that a target is written from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from tausid.data.scaling import Scaling
from tausid.engine.holds import hold_slopes
from tausid.engine.networks import Network
from tausid.engine.steppers import Stepper, get_stepper
from tausid.errors import ConfigError
from tausid.export.operations import ACTIVATIONS, Function, Value, concat, write_function
from tausid.model.ensembles import AnyModel, EnsembleModel, trimmed_at_each_end
from tausid.model.initial import FreeState
from tausid.model.model import Model
from tausid.model.physics import KnownPart


@dataclass(frozen=True, eq=False)
class Description:
    """`dx/dt = f(x, u)`, `y = g(x, u)`: u and y in physical units, x normalized as `Simulation.x`, time in seconds.

    Args:
        f: the state derivative per second.
        g: the outputs, within their limits.
        stepper: the explicit method that the model is integrated with.
        substeps: its steps per sampling interval.
        longest_step: a longer interval in seconds is integrated in equal parts, each of so many substeps.
        delays: seconds after which each input acts; f and g take inputs as they act.
        hold: how far each input moves to its next sample within an interval: 0 (zero-order) or 1 (first-order).
        x0: a state to begin from, the mean of those seen in training; zero where the model does not know it.
        ts: sampling time of the training data in seconds.
        u_mean: mean of each input in training.
        u_std: standard deviation of each input in training.
        input_names: one name per input.
        output_names: one name per output.
        input_units: one unit per input.
        output_units: one unit per output.
    """

    f: Function
    g: Function
    stepper: Stepper
    substeps: int
    longest_step: float
    delays: np.ndarray
    hold: np.ndarray
    x0: np.ndarray
    ts: float
    u_mean: np.ndarray
    u_std: np.ndarray
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_units: tuple[str, ...]
    output_units: tuple[str, ...]

    @property
    def nx(self) -> int:
        """Number of states."""
        return self.f.size

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return self.f.operations[1].size

    @property
    def ny(self) -> int:
        """Number of outputs."""
        return self.g.size


def describe(model: AnyModel | Description) -> Description:
    """Describe a model by plain arrays and operations, in double precision.

    Args:
        model: a model, or an ensemble: its members side by side, and the trimmed mean of their outputs. A description
            is given back.

    Returns:
        The description.

    Raises:
        ConfigError: members that are integrated in different ways, or known equations with a function that has no
            counterpart in the targets.
    """
    if isinstance(model, Description):
        return model
    members = model.members if isinstance(model, EnsembleModel) else (model,)
    first = members[0]
    stepper, substeps, longest = _integration(members)
    nu, nx = first.state_space.nu, [member.state_space.nx for member in members]
    ends = np.cumsum(nx)
    ranges = [range(end - n, end) for end, n in zip(ends, nx, strict=True)]

    def own(x: Value, which: range) -> Value:
        return x if len(which) == x.size else x.pick(which)

    def f(x: Value, u: Value) -> Value:
        return concat([_derivative(member, own(x, r), u) for member, r in zip(members, ranges, strict=True)])

    def g(x: Value, u: Value) -> Value:
        return _trimmed_mean([_output(member, own(x, r), u) for member, r in zip(members, ranges, strict=True)])

    return Description(
        f=write_function(int(ends[-1]), nu, f),
        g=write_function(int(ends[-1]), nu, g),
        stepper=get_stepper(stepper),
        substeps=substeps,
        longest_step=longest,
        delays=np.array(first.delays or (0.0,) * nu, float),
        hold=np.array(hold_slopes(first.integration.hold, nu)),
        x0=np.concatenate([_start(member) for member in members]),
        ts=first.ts,
        u_mean=np.asarray(first.scaling.u_mean, float),
        u_std=np.asarray(first.scaling.u_std, float),
        input_names=first.input_names,
        output_names=first.output_names,
        input_units=first.input_units,
        output_units=first.output_units,
    )


def step_function(description: Description) -> Function:
    """One sampling interval of at most `longest_step` as a function of x and `[u; u_next; dt]`."""
    nu, stepper, n = description.nu, description.stepper, description.substeps

    def body(x: Value, given: Value) -> Value:
        u, dt = given.pick(range(nu)), given.pick([2 * nu])
        rise = (given.pick(range(nu, 2 * nu)) - u) * description.hold
        for i in range(n):
            slopes: list[Value] = []
            for row, c in zip(stepper.a, stepper.c, strict=True):
                held = u + rise * ((i + c) / n) if description.hold.any() else u
                slopes.append(description.f.at(_advance(x, dt, row, slopes, n), held))
            x = _advance(x, dt, stepper.b, slopes, n)
        return x

    return write_function(description.nx, 2 * nu + 1, body)


def _advance(x: Value, dt: Value, weights: tuple[float, ...], slopes: list[Value], n: int) -> Value:
    terms = [slope * (weight / n) for weight, slope in zip(weights, slopes, strict=True) if weight]
    return x + _sum(x, x.size, list(terms)) * dt if terms else x


def _integration(members: tuple[Model, ...]) -> tuple[str, int, float]:
    """Stepper, substeps and longest step of all members."""
    nu = members[0].state_space.nu
    found = {
        (m.integrator.stepper, m.integrator.substeps, m.longest_step, hold_slopes(m.integration.hold, nu), _delays(m))
        for m in members
    }
    if len(found) > 1:
        ways = "; ".join(
            f"{n} substeps of {name}{''.join(f', delayed by {d:g} s' for d in delays)}"
            for name, n, _, _, delays in sorted(found)
        )
        raise ConfigError(
            f"members of an ensemble must be integrated alike to be exported; these are not: {ways}. "
            "Export one of its `members`."
        )
    stepper, substeps, longest, *_ = found.pop()
    return stepper, substeps, longest


def _delays(model: Model) -> tuple[float, ...]:
    return tuple(model.delays) if any(model.delays) else ()


def _start(model: Model) -> np.ndarray:
    initial = model.state_space.initial
    return np.asarray(initial.expected if isinstance(initial, FreeState) else np.zeros(model.state_space.nx), float)


def _derivative(model: Model, x: Value, u: Value) -> Value:
    """`diag(1/tau) f(x, u)`, and known equations."""
    space = model.state_space
    rate = np.broadcast_to(1.0 / np.atleast_1d(model.tau), space.nx)
    network = _network(space.f, concat([x, _normalized(model.scaling, u)]))
    slope = None if network is None else network * rate
    return _sum(x, space.nx, [slope, None if space.physics is None else _known(space.physics, "derivative", x, u)])


def _output(model: Model, x: Value, u: Value) -> Value:
    """`g(x, u)`, and known equations, within their limits."""
    space = model.state_space
    y = _network(space.g, concat([x, _normalized(model.scaling, u)]) if space.feedthrough else x)
    total = _sum(x, space.ny, [y, None if space.physics is None else _known(space.physics, "output", x, u)])
    if space.limits is not None:
        low, high = np.array(space.limits).T
        total = total.binary("maximum", low).binary("minimum", high)
    return total * model.scaling.y_std + model.scaling.y_mean


def _normalized(scaling: Scaling, u: Value) -> Value:
    return (u - scaling.u_mean) / scaling.u_std if u.size else u


def _known(part: KnownPart, which: str, x: Value, u: Value) -> Value:
    """A plant's derivative or output in normalized units; zero for states that are not the plant's."""
    from tausid.export.tracing import trace

    units = part.units
    states = x.pick(range(part.nx)) * units.x_std + units.x_mean
    values = trace(part, which, states, u)
    if which == "output":
        return (values - units.y_mean) / units.y_std
    return concat([values / units.x_std, x.constant(np.zeros(x.size - part.nx))])


def _network(network: Network, z: Value) -> Value | None:
    """`linear z + bias + W_n s(... s(W_1 z + b_1) ...) + coefficients m(z)`; None where all of it is zero."""
    parts = [z.linear(network.linear) if np.any(network.linear) else None]
    if network.weights and np.any(network.weights[-1]):
        hidden = z
        for weight, bias in zip(network.weights[:-1], network.biases, strict=True):
            hidden = ACTIVATIONS[network.activation](hidden.linear(weight) + bias)
        parts.append(hidden.linear(network.weights[-1]))
    if network.coefficients is not None and np.any(network.coefficients):
        parts.append(_monomials(z, network.degree).linear(network.coefficients))
    if network.bias is not None and np.any(network.bias):
        parts.append(z.constant(network.bias))
    return None if all(part is None for part in parts) else _sum(z, len(network.linear), parts)


def _monomials(z: Value, degree: int) -> Value:
    """All products of 2 to `degree` entries, in the order of `tausid.engine.networks.monomials`."""
    products = []
    for d in range(2, degree + 1):
        first, *others = np.array(list(combinations_with_replacement(range(z.size), d)), int).T
        product = z.pick(first)
        for factor in others:
            product = product * z.pick(factor)
        products.append(product)
    return concat(products)


def _sum(x: Value, size: int, parts: list[Value | None]) -> Value:
    """The sum of the parts that are there; zero where none is."""
    there = [part for part in parts if part is not None]
    total = there[0] if there else x.constant(np.zeros(size))
    for part in there[1:]:
        total = total + part
    return total


def _trimmed_mean(values: list[Value]) -> Value:
    """The mean without the lowest and highest members, entry by entry: sorted by exchanges of neighbours."""
    for last in range(len(values) - 1, 0, -1):
        for i in range(last):
            a, b = values[i], values[i + 1]
            values[i], values[i + 1] = a.binary("minimum", b), a.binary("maximum", b)
    cut = trimmed_at_each_end(len(values))
    kept = values[cut : len(values) - cut]
    return _sum(values[0], values[0].size, list(kept)) * (1.0 / len(kept)) if len(values) > 1 else values[0]
