"""The state-space model in normalized units: f, g, the initial state, tau, and how they fit together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from tausid.config import Config
from tausid.errors import ConfigError
from tausid.networks import MLP, AbstractNetwork, Polynomial, ResidualMLP, Zero
from tausid.physics import KnownPart
from tausid.rollout import VectorField
from tausid.tau import Tau

# A negative definite by construction keeps this distance, in normalized units: no mode is slower than a thousand tau.
SLOWEST = 1e-3


class AbstractInitialState(eqx.Module):
    """Where a trajectory begins; `n_past` samples before it are needed."""

    @property
    @abstractmethod
    def n_past(self) -> int:
        """Samples needed before the first simulated one."""

    @abstractmethod
    def __call__(
        self,
        past_u: Float[Array, "n_past B nu"],
        past_y: Float[Array, "n_past B ny"],
        record: Int[Array, "B"],
        lag: Float[Array, "n_past B"] | None = None,
    ) -> Float[Array, "B nx"]:
        """The state at the sample after the past ones."""


class Encoder(AbstractInitialState):
    """`x_k = e(u_{k-1}, ..., u_{k-nb}, y_{k-1}, ..., y_{k-na})`, the paper's encoder network.

    On an irregular clock the past samples are interpolated at i median steps ago, and the network sees `lag`, too: how
    much longer ago than that the i-th sample was, in median steps.

    Args:
        network: `e`; its inputs are the past inputs, then the past outputs, then the lags, each from old to new.
        na: number of past outputs.
        nb: number of past inputs.
        sees_time: whether the network sees the lags.
    """

    network: AbstractNetwork | MLP
    na: int = eqx.field(static=True)
    nb: int = eqx.field(static=True)
    sees_time: bool = eqx.field(static=True, default=False)

    @property
    def n_past(self) -> int:
        """As many as the longer of both, max(na, nb)."""
        return max(self.na, self.nb)

    def __call__(
        self,
        past_u: Float[Array, "n_past B nu"],
        past_y: Float[Array, "n_past B ny"],
        record: Int[Array, "B"],
        lag: Float[Array, "n_past B"] | None = None,
    ) -> Float[Array, "B nx"]:
        """The state at the sample after the past ones."""
        n = self.n_past
        seen = [*past_u[n - self.nb :], *past_y[n - self.na :]]  # each (B, channels)
        if self.sees_time and lag is not None:
            seen.append(lag.T)
        batch = past_y.shape[1]
        return self.network(jnp.concatenate(seen, axis=-1) if seen else jnp.zeros((batch, 0), past_y.dtype))


class FreeState(AbstractInitialState):
    """The initial state of each training record as a parameter of the optimisation (eq. 3).

    That of a new record is estimated from its first samples, together with what training knows of states:
    `|tightness (x0 - expected)|^2` counts as much as the squared normalized errors of the outputs.

    Args:
        x0: one state per training record.
        expected: mean of the states along the training records.
        tightness: how closely they lie around it, for the noise of the outputs; zero where that is not known.
    """

    x0: Float[Array, "n_records nx"]
    expected: Float[Array, "nx"]
    tightness: Float[Array, "nx nx"]

    @classmethod
    def unknown(cls, x0: Float[Array, "n_records nx"]) -> FreeState:
        """Initial states of records; nothing is known of other states.

        Args:
            x0: one state per training record.

        Returns:
            The initial states.
        """
        nx = x0.shape[1]
        return cls(x0, jnp.zeros(nx), jnp.zeros((nx, nx)))

    @property
    def n_past(self) -> int:
        """None: the state needs no past."""
        return 0

    def __call__(
        self,
        past_u: Float[Array, "n_past B nu"],
        past_y: Float[Array, "n_past B ny"],
        record: Int[Array, "B"],
        lag: Float[Array, "n_past B"] | None = None,
    ) -> Float[Array, "B nx"]:
        """The state of each window's record."""
        return self.x0[record]


class CorrectedField(eqx.Module):
    """`dx/dt = known(x, u) + diag(1/tau) f(x, u)`: known equations, and what corrects them.

    Args:
        known: the known equations.
        correction: the normalized network.
    """

    known: KnownPart
    correction: VectorField

    def __call__(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B nx"]:
        """The state derivative per second."""
        slope = self.known.derivative(x, u)
        return slope if isinstance(self.correction.network, Zero) else slope + self.correction(x, u)


class StateSpace(eqx.Module):
    """`dx/dt = diag(1/tau) f(x, u)`, `y = g(x, u)`, in normalized units and seconds (eqs. 4 and 12).

    With known equations, f and g are what is added to these.

    Args:
        f: state network, from `[x; u]` to nx, as it is trained; `dynamics` is what it stands for.
        g: output network, from `[x; u]` to ny, or from `x` where there is no feedthrough.
        initial: where trajectories begin.
        tau: the normalization constant.
        dae: the DAE network d(x, u) that only its penalty sees, or None.
        A_form: what the part of `f.linear` that acts on the state is: `free`, A itself, or `negative-definite`, the
            free parameters of `negative_definite`.
        limits: lowest and highest value of each output, normalized; None where there are none.
        physics: known equations, or None.
    """

    f: AbstractNetwork
    g: AbstractNetwork
    initial: AbstractInitialState
    tau: Tau
    dae: MLP | None
    A_form: str = eqx.field(static=True, default="free")
    limits: tuple[tuple[float, float], ...] | None = eqx.field(static=True, default=None)
    physics: KnownPart | None = None

    @property
    def nx(self) -> int:
        """Number of states."""
        return self.f.linear.shape[0]

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return self.f.linear.shape[1] - self.nx

    @property
    def ny(self) -> int:
        """Number of outputs."""
        return self.g.linear.shape[0]

    @property
    def feedthrough(self) -> bool:
        """Whether g sees the inputs."""
        return self.g.linear.shape[1] > self.nx or self.nu == 0

    @property
    def A(self) -> Float[Array, "nx nx"]:
        """The linear part of f that acts on the state."""
        return self.dynamics.linear[:, : self.nx]

    @property
    def dynamics(self) -> AbstractNetwork:
        """The state network with A as it acts: `f` itself where A is free."""
        return self.f if self.A_form == "free" else _with_A(self.f, negative_definite(self.f.linear[:, : self.nx]))

    @property
    def field(self) -> VectorField | CorrectedField:
        """The right-hand side of the state equation, for a rollout."""
        network = VectorField(self.dynamics, 1.0 / self.tau.seconds)
        return network if self.physics is None else CorrectedField(self.physics, network)

    def derivative(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B nx"]:
        """The state derivative per second, `diag(1/tau) f(x, u)`.

        Args:
            x: states.
            u: inputs, normalized.

        Returns:
            Their derivatives.
        """
        return self.field(x, u)

    def output(self, x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]) -> Float[Array, "*B ny"]:
        """The output, `g(x, u)`, or `g(x)` where there is no feedthrough; within its limits where it has some.

        Args:
            x: states.
            u: inputs, normalized.

        Returns:
            Outputs, normalized.
        """
        y = self.g(jnp.concatenate([x, u], axis=-1) if self.feedthrough else x)
        return self.limit(self.with_known_output(y, x, u))

    def with_known_output(
        self, y: Float[Array, "*B ny"], x: Float[Array, "*B nx"], u: Float[Array, "*B nu"]
    ) -> Float[Array, "*B ny"]:
        """The outputs of g plus those of known equations, where there are any.

        Args:
            y: `g(x, u)`.
            x: states.
            u: inputs, normalized.

        Returns:
            Outputs, normalized.
        """
        return y if self.physics is None else y + self.physics.output(x, u)

    def limit(self, y: Float[Array, "*B ny"]) -> Float[Array, "*B ny"]:
        """Outputs within their limits, with the derivative of outputs without.

        An output beyond its limit, where a smaller one was measured, still has a way back; where the limit itself was
        measured there is no error, and so no gradient.

        Args:
            y: values of g.

        Returns:
            The outputs.
        """
        return y if self.limits is None else clip_straight(y, *jnp.asarray(self.limits, y.dtype).T)


@jax.custom_jvp
def clip_straight(y: Float[Array, "*B ny"], low: Float[Array, "ny"], high: Float[Array, "ny"]) -> Float[Array, "*B ny"]:
    """`y` within limits, with the derivative of `y` itself.

    Args:
        y: values.
        low: lowest values.
        high: highest values.

    Returns:
        The clipped values.
    """
    return jnp.clip(y, low, high)


clip_straight.defjvps(lambda tangent, *_: tangent, None, None)


def build_state_space(
    config: Config,
    tau: Tau,
    *,
    nu: int,
    ny: int,
    n_records: int,
    rng: np.random.Generator,
    physics: KnownPart | None = None,
) -> StateSpace:
    """An untrained model with random weights.

    Args:
        config: sizes, kinds and initialization.
        tau: the normalization constant.
        nu: number of inputs.
        ny: number of outputs.
        n_records: number of training records, for free initial states.
        rng: source of random numbers.
        physics: known equations, if there are any; a network that corrects them starts at zero.

    Returns:
        The model.

    Raises:
        ConfigError: tau has one value per state, but not nx of them.
    """
    nx = config.order
    if tau.factor.shape not in ((), (nx,)):
        raise ConfigError(
            f"`tau` must be one number or one per state; got {tau.factor.size} for {nx} states. "
            f"Give one number, or {nx}."
        )
    f = make_network(config, nx + nu, nx, rng)
    if config.A_start != "zero-mean":
        f = _with_A(f, f.linear[:, :nx] + _stable_matrix(config, rng))
    if config.A_form == "negative-definite":
        f = _with_A(f, free_parameters(np.asarray(f.linear[:, :nx])))
    g = make_network(config, nx + nu if config.feedthrough else nx, ny, rng)
    if physics is not None:
        f = Zero(nx + nu, nx) if config.correction == "none" else start_at_zero(f, physics.nx)
        g = Zero(nx + nu, ny)
    return StateSpace(
        f=f,
        g=g,
        initial=_make_initial(config, nu, ny, n_records, rng),
        tau=tau,
        dae=_make_mlp(config, nx + nu, 1, rng) if config.dae_weight > 0 else None,
        A_form=config.A_form,
        physics=physics,
    )


def negative_definite(free: Float[Array, "nx nx"]) -> Float[Array, "nx nx"]:
    """`A = -(L L' + SLOWEST I) + (S - S')`: A + A' is negative definite whatever the parameters are.

    Every matrix whose symmetric part has no eigenvalue above -SLOWEST can be written so.

    Args:
        free: L, its lower triangle with the diagonal; and S, what lies above.

    Returns:
        A.
    """
    L, S = jnp.tril(free), jnp.triu(free, 1)
    return S - S.T - L @ L.T - SLOWEST * jnp.eye(free.shape[0], dtype=free.dtype)


def free_parameters(A: Float[np.ndarray, "nx nx"]) -> Float[Array, "nx nx"]:
    """The parameters of `negative_definite` that give A, or the nearest matrix that has some.

    Args:
        A: any square matrix; eigenvalues of its symmetric part above -2 SLOWEST are lowered to that.

    Returns:
        The parameters.
    """
    A = np.asarray(A, float)
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    # Not to the edge: at L = 0 the derivative of L L' vanishes, and training could not leave it.
    inside = np.maximum(-values - SLOWEST, SLOWEST)
    L = np.linalg.cholesky((vectors * inside) @ vectors.T)
    return jnp.asarray(L + np.triu((A - A.T) / 2, 1))


def _with_A(f: AbstractNetwork, A: Float[Array, "nx nx"]) -> AbstractNetwork:
    return eqx.tree_at(lambda n: n.linear, f, f.linear.at[:, : A.shape[0]].set(A))


def nonlinear_part(network: AbstractNetwork | MLP) -> PyTree:
    """Everything of a network but its linear part.

    Args:
        network: f, g or the encoder's; or a tree of the same shape.

    Returns:
        Its hidden layers, or its coefficients of degree two and more.
    """
    if isinstance(network, Polynomial):
        return network.coefficients
    return network.mlp if isinstance(network, ResidualMLP) else network


def start_at_zero(network: AbstractNetwork, n_rows: int) -> AbstractNetwork:
    """The network with its first values zero everywhere; the others, and what lies before the last layer, stay.

    Args:
        network: a residual network or a polynomial.
        n_rows: how many values become zero.

    Returns:
        The network.
    """
    for where in (lambda n: n.linear, readout_of(network)):
        network = eqx.tree_at(where, network, where(network).at[:n_rows].set(0.0))
    return network


def make_network(config: Config, n_in: int, n_out: int, rng: np.random.Generator) -> AbstractNetwork:
    """A network of the configured kind with random weights.

    Args:
        config: kind, sizes and initialization.
        n_in: number of inputs.
        n_out: number of outputs.
        rng: source of random numbers.

    Returns:
        The network.
    """
    if config.network == "polynomial":
        polynomial = Polynomial.random(rng, n_in, n_out, degree=config.degree, weight_range=config.weight_range)
        return _grown_from_zero(polynomial, config)
    network = ResidualMLP.random(
        rng,
        n_in,
        n_out,
        hidden=config.hidden,
        activation=config.activation,
        weight_range=config.weight_range,
        bias_range=config.bias_range,
    )
    return _grown_from_zero(network, config)


def readout_of(network: AbstractNetwork) -> Callable[[Any], Array]:
    """Where a network keeps its `readout`, for `eqx.tree_at`.

    Args:
        network: a residual network or a polynomial.

    Returns:
        From such a network to that array.
    """
    return (lambda n: n.coefficients) if isinstance(network, Polynomial) else (lambda n: n.mlp.weights[-1])


def _grown_from_zero(network: AbstractNetwork, config: Config) -> AbstractNetwork:
    """With its last nonlinear layer at zero, where that is asked for: the gradient of that layer is not zero."""
    if config.nonlinear_start != "zero":
        return network
    return eqx.tree_at(readout_of(network), network, replace_fn=jnp.zeros_like)


def _stable_matrix(config: Config, rng: np.random.Generator) -> Float[np.ndarray, "nx nx"]:
    """Where A starts, before the small random weights: -I, or -MM' with a random M."""
    nx = config.order
    if config.A_start == "-I":
        return -np.eye(nx)
    M = rng.uniform(-1.0, 1.0, (nx, nx)) / np.sqrt(nx)
    return -M @ M.T


def _make_initial(config: Config, nu: int, ny: int, n_records: int, rng: np.random.Generator) -> AbstractInitialState:
    if config.initial_state == "free":
        return FreeState.unknown(jnp.zeros((n_records, config.order)))
    sees_time = config.clock == "irregular"
    n_in = config.na * ny + config.nb * nu + sees_time * max(config.na, config.nb)
    make = _make_mlp if config.encoder == "mlp" else make_network
    return Encoder(make(config, n_in, config.order, rng), config.na, config.nb, sees_time)


def _make_mlp(config: Config, n_in: int, n_out: int, rng: np.random.Generator) -> MLP:
    return MLP.random(
        rng,
        (n_in, *config.hidden, n_out),
        activation=config.activation,
        weight_range=config.weight_range,
        output_bias=True,
        bias_range=config.bias_range,
    )
