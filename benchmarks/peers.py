"""The paper's optimiser step in other libraries: the same model, batch and horizon, one thread."""

from __future__ import annotations

from collections.abc import Callable

from paper import Sizes, cut_windows, make_jax_steps, make_record


def torch_networks(sizes: Sizes):
    """State network, output network and encoder of the paper's form (deepSI's class)."""
    import deepSI
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)

    def network(n_in: int, n_out: int) -> torch.nn.Module:
        return deepSI.MLP_res_net(n_in, n_out, sizes.layers, sizes.hidden, activation=torch.nn.LeakyReLU)

    inputs = sizes.nx + sizes.nu
    past = sizes.past * (sizes.nu + sizes.ny)
    return network(inputs, sizes.nx), network(inputs, sizes.ny), network(past, sizes.nx)


def torch_steps(parameters, loss: Callable[[], object], steps: int) -> Callable[[], None]:
    """A call that takes `steps` steps of Adam."""
    import torch

    optimiser = torch.optim.Adam(list(parameters))

    def run() -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            value = loss()
            value.backward()
            optimiser.step()
            value.item()

    return run


def torch_loss(sizes: Sizes, states: Callable) -> tuple[list, Callable]:
    """Parameters and loss of the model in plain PyTorch, for a function that integrates the states."""
    import torch

    f, g, encoder = torch_networks(sizes)
    record = [torch.as_tensor(array) for array in make_record(sizes)]

    def loss():
        starts = torch.randint(sizes.past, sizes.record - sizes.samples, (sizes.batch,))
        past, u, y = cut_windows(sizes, starts.numpy(), *record)
        x = states(f, encoder(torch.cat(past, dim=-1)), u)
        z = torch.cat([x, u], dim=-1).reshape(-1, sizes.nx + sizes.nu)
        return torch.mean((g(z).reshape(y.shape) - y) ** 2)

    parameters = [p for net in (f, g, encoder) for p in net.parameters()]
    return parameters, loss


def make_torch(sizes: Sizes, steps: int) -> Callable[[], None]:
    """Plain PyTorch, eager."""
    import torch

    def states(f, x, u):
        xs = [x]
        for u_now in u[:-1]:
            k1 = f(torch.cat([x, u_now], -1))
            k2 = f(torch.cat([x + 0.5 * sizes.ts * k1, u_now], -1))
            k3 = f(torch.cat([x + 0.5 * sizes.ts * k2, u_now], -1))
            k4 = f(torch.cat([x + sizes.ts * k3, u_now], -1))
            x = x + sizes.ts / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            xs.append(x)
        return torch.stack(xs)

    return torch_steps(*torch_loss(sizes, states), steps)


def make_torchdiffeq(sizes: Sizes, steps: int) -> Callable[[], None]:
    """torchdiffeq's fixed-step `rk4`; it evaluates four times a step, which tells the held u."""
    import torch
    from torchdiffeq import odeint

    t = torch.arange(sizes.samples) * sizes.ts

    def states(f, x0, u):
        calls = iter(range(4 * sizes.samples))
        return odeint(lambda _, x: f(torch.cat([x, u[next(calls) // 4]], -1)), x0, t, method="rk4")

    return torch_steps(*torch_loss(sizes, states), steps)


def make_deepsi_model(sizes: Sizes):
    """deepSI's continuous-time subspace encoder network."""
    import deepSI
    import torch

    f, g, encoder = torch_networks(sizes)
    zero, one = torch.zeros(sizes.nu), torch.ones(sizes.nu)
    norm = deepSI.Norm(zero, one, torch.zeros(sizes.ny), torch.ones(sizes.ny), sizes.ts)
    return deepSI.SUBNET_CT(
        sizes.nu,
        sizes.ny,
        norm,
        nx=sizes.nx,
        nb=sizes.past,
        na=sizes.past,
        f_CT=norm.f_CT(f, 1.0),
        h=norm.h(g),
        encoder=norm.encoder(encoder),
        feedthrough=True,
    )


def make_deepsi(sizes: Sizes, steps: int) -> Callable[[], None]:
    """deepSI's own model, windows, batches and loss, with the optimiser step of its `fit`."""
    import deepSI

    model = make_deepsi_model(sizes)
    u, y = make_record(sizes)
    record = deepSI.Input_output_data(u, y, sampling_time=sizes.ts)
    arrays, indices = model.create_arrays(record, T=sizes.samples)
    batches = deepSI.fitting.data_batcher(*arrays, batch_size=sizes.batch, indices=indices)
    loss = lambda: deepSI.fitting.compute_NMSE(model, *next(batches))  # noqa: E731
    return torch_steps(model.parameters(), loss, steps)


def make_diffrax(sizes: Sizes, steps: int) -> Callable[[], object]:
    """diffrax with the classic RK4 tableau, one step of its solver per sample in a scan."""
    import diffrax
    import jax
    import jax.numpy as jnp
    import numpy as np

    class RK4(diffrax.AbstractERK):
        tableau = diffrax.ButcherTableau(
            c=np.array([0.5, 0.5, 1.0]),
            b_sol=np.array([1, 2, 2, 1]) / 6,
            b_error=np.zeros(4),
            a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        )
        interpolation_cls = diffrax.LocalLinearInterpolation

        def order(self, terms):
            return 4

    def states(f, x0, u):
        term = diffrax.ODETerm(lambda t, x, held: f(jnp.concatenate([x, held], axis=-1)))
        solver = RK4()

        def advance(x, held):
            state = solver.init(term, 0.0, sizes.ts, x, held)
            x, *_ = solver.step(term, 0.0, sizes.ts, x, held, state, made_jump=False)
            return x, x

        return jnp.concatenate([x0[None], jax.lax.scan(advance, x0, u[:-1])[1]])

    return make_jax_steps(sizes, steps, states, lambda network, z: network(z))


PEERS = {
    "deepsi": make_deepsi,
    "torchdiffeq": make_torchdiffeq,
    "torch": make_torch,
    "diffrax": make_diffrax,
}
