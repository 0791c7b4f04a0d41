"""The known part of a state-space model: a plant's equations in normalized units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.data.scaling import Scaling
from tausid.engine.tree import Tree, static
from tausid.model.physics._declare import AbstractPhysics, parameters_of, with_values
from tausid.shapes import Array, Float


@dataclass(frozen=True)
class FittedParameter:
    """A parameter after the fit.

    Args:
        value: in its unit.
        unit: the unit.
        deviation: standard deviation of the estimate, for residuals that are white noise; None where it is not known,
            as after a training together with a network.
        lower: its lower bound, or None.
        upper: its upper bound, or None.
    """

    value: float
    unit: str
    deviation: float | None
    lower: float | None
    upper: float | None

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" +- {self.deviation:.2g}"
        return f"{self.value:.5g}{spread} {self.unit}".rstrip()


class Units(Tree):
    """Means and deviations between physical and normalized units, and what else is never trained.

    Args:
        x_mean: mean of each state.
        x_std: standard deviation of each state.
        u_mean: mean of each input.
        u_std: standard deviation of each input.
        y_mean: mean of each output.
        y_std: standard deviation of each output.
        deviation: standard deviation of each parameter; NaN where it is not known.
    """

    x_mean: Float[np.ndarray, "nx"]
    x_std: Float[np.ndarray, "nx"]
    u_mean: Float[np.ndarray, "nu"]
    u_std: Float[np.ndarray, "nu"]
    y_mean: Float[np.ndarray, "ny"]
    y_std: Float[np.ndarray, "ny"]
    deviation: Float[np.ndarray, "n_parameters"]

    @classmethod
    def from_scaling(cls, scaling: Scaling, *, nx: int, n_parameters: int) -> Units:
        """Units with states left as they are.

        Args:
            scaling: of inputs and outputs.
            nx: number of states.
            n_parameters: number of fitted parameters.

        Returns:
            The units.
        """
        return cls(
            np.zeros(nx), np.ones(nx), scaling.u_mean, scaling.u_std, scaling.y_mean, scaling.y_std,
            np.full(n_parameters, np.nan),
        )  # fmt: skip


class KnownPart(Tree):
    """A plant's equations as functions of normalized states and inputs; other states than the plant's come after them.

    Args:
        plant: the declared equations.
        free: the free number behind each fitted parameter.
        units: between physical and normalized units.
        trainable: whether training may change the parameters.
    """

    plant: AbstractPhysics = static()
    free: Float[Array, "n_parameters"]
    units: Units
    trainable: bool = static()

    @classmethod
    def start(cls, plant: AbstractPhysics, scaling: Scaling, *, trainable: bool) -> KnownPart:
        """The equations with their start values, states in physical units.

        Args:
            plant: the declared equations.
            scaling: of inputs and outputs.
            trainable: whether training may change the parameters.

        Returns:
            The known part.
        """
        parameters = parameters_of(plant).values()
        free = np.array([parameter.free(parameter.start) for parameter in parameters])
        units = Units.from_scaling(scaling, nx=len(plant.states), n_parameters=len(free))
        return cls(plant, free, units, trainable)

    @property
    def nx(self) -> int:
        """Number of states of the plant."""
        return len(self.plant.states)

    @property
    def parameters(self) -> dict[str, FittedParameter]:
        """The fitted parameters by name, in their units."""
        found = {}
        for (name, parameter), free, deviation in zip(
            parameters_of(self.plant).items(), np.asarray(self.free, float), self.units.deviation, strict=True
        ):
            value = float(parameter.value(free))
            known = None if np.isnan(deviation) else float(deviation)
            found[name] = FittedParameter(value, parameter.unit, known, parameter.lower, parameter.upper)
        return found

    def slopes(self) -> Float[np.ndarray, "n_parameters"]:
        """Derivative of each parameter with respect to its free number."""
        import jax

        pairs = zip(parameters_of(self.plant).values(), np.asarray(self.free, float), strict=True)
        return np.array([float(jax.grad(parameter.value)(float(free))) for parameter, free in pairs])

    def derivative(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B nx"]:
        """The derivative of the normalized states per second; zero for states that are not the plant's.

        Args:
            x: states, normalized.
            u: inputs, normalized.

        Returns:
            Their derivatives.
        """
        import jax.numpy as jnp

        slopes = self.plant.derivative(*self._physical(x, u), with_values(self.plant, self.free))
        own = self._stack(slopes, x) / jnp.asarray(self.units.x_std, x.dtype)
        return jnp.concatenate([own, jnp.zeros_like(x[..., self.nx :])], axis=-1)

    def output(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B ny"]:
        """The plant's outputs, normalized.

        Args:
            x: states, normalized.
            u: inputs, normalized.

        Returns:
            The outputs.
        """
        import jax.numpy as jnp

        y = self._stack(self.plant.output(*self._physical(x, u), with_values(self.plant, self.free)), x)
        return (y - jnp.asarray(self.units.y_mean, x.dtype)) / jnp.asarray(self.units.y_std, x.dtype)

    def _physical(self, x: Array, u: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        units = self.units
        states = [x[..., i] * units.x_std[i] + units.x_mean[i] for i in range(self.nx)]
        inputs = [u[..., i] * units.u_std[i] + units.u_mean[i] for i in range(u.shape[-1])]
        return tuple(states), tuple(inputs)

    def _stack(self, values: Sequence[Array], x: Array) -> Array:
        import jax.numpy as jnp

        return jnp.stack([jnp.broadcast_to(value, x.shape[:-1]) for value in values], axis=-1)
