"""Responses and records of the simulated plants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tausid.checks import check_number
from tausid.data.plants._blocks import DeadZoneValve, LinearPlant, VanDerPol, WienerHammerstein
from tausid.data.plants._excitation import AbstractExcitation
from tausid.data.plants._integrate import (
    Experiment,
    as_signal,
    make_dataset,
    runge_kutta,
    sample_states,
)
from tausid.data.plants._mechanics import BoucWen, Duffing, MassChain, RectifiedMotor, SlidingMass, TwoMassDrive
from tausid.data.plants._plant import AbstractPlant
from tausid.data.plants._processes import (
    DelayedTank,
    FlowHeater,
    Furnace,
    Neutralization,
    QuadrupleTanks,
    SolderingIron,
)
from tausid.data.records import Dataset
from tausid.errors import ConfigError, unknown_name
from tausid.shapes import Float

PLANTS: dict[str, type[AbstractPlant]] = {
    kind.name: kind
    for kind in (
        Duffing,
        TwoMassDrive,
        Neutralization,
        RectifiedMotor,
        DeadZoneValve,
        WienerHammerstein,
        FlowHeater,
        VanDerPol,
        BoucWen,
        DelayedTank,
        QuadrupleTanks,
        MassChain,
        SlidingMass,
        Furnace,
        SolderingIron,
        LinearPlant,
    )
}
# Half periods per record of the lines that a drift is made of.
DRIFT_LINES = (1, 2, 3)


def response(
    plant: AbstractPlant | str, u: ArrayLike, *, x0: Sequence[float] | None = None
) -> Float[np.ndarray, "N ny"]:
    """Outputs of a plant without noise, for inputs held constant between samples.

    Args:
        plant: a plant, or the name of one for its default parameters, such as `duffing`.
        u: the inputs at the samples, `plant.ts` seconds apart, shape (N, nu), or (N,) for one.
        x0: the state at the first sample, one number for each of `plant.states`; zeros by default.

    Returns:
        The outputs at the samples, shape (N, ny). With a dead time, the first input was there before, too.

    Raises:
        DataError: `u` is not finite, or has another number of channels.
        ConfigError: there is no plant of that name, or `x0` does not fit it.

    Example:
        >>> from tausid.data.plants import Duffing
        >>> response(Duffing(cubic=0.0), [20.0] * 400)[-1].round(3)  # 20 N at 20 N/mm
        array([1.])
    """
    plant = _find(plant)
    signal = as_signal(u, [name for name, _ in plant.inputs])
    start = (0.0,) * len(plant.states) if x0 is None else tuple(float(value) for value in x0)
    if len(start) != len(plant.states) or not all(math.isfinite(value) for value in start):
        wanted = ", ".join(f"{name} ({unit})" for name, unit in plant.states)
        raise ConfigError(f"`x0` must be one finite number for each of: {wanted}; got {x0!r}. Correct it.")
    late = round(plant.dead_time / plant.ts)
    states = sample_states(
        lambda x, held, h: runge_kutta(lambda stage: plant.derivative(stage, held), x, h),
        signal[np.maximum(np.arange(len(signal)) - late, 0)],
        start,
        ts=plant.ts,
        max_step=plant.max_step,
    )
    return np.array([plant.output(tuple(x)) for x in states.tolist()])


def simulate(
    plant: AbstractPlant | str,
    *,
    seed: int,
    samples: int | None = None,
    test_samples: int | None = None,
    noise: float | None = None,
) -> Dataset:
    """Make the training and the test records of a plant, each with an excitation and an initial state of its own.

    Each record has excited the plant for some time when it begins: the end of the excitation comes before its start.
    The test records of a plant have another kind of excitation than its training record; those of `duffing`, `two_mass`
    and `ph` are two, the same kind and another one.

    Args:
        plant: a plant, or the name of one for its default parameters, such as `duffing`.
        seed: decides all excitations and noise; the same seed gives the same records.
        samples: length of the training record; by default the plant's.
        test_samples: length of each test record; by default that of the training record.
        noise: standard deviation of white noise on each output, in the outputs' unit; by default that of the plant's
            sensors, with their drift.

    Returns:
        The records, and the standard deviation of what the sensors add.

    Raises:
        ConfigError: there is no plant of that name, or a setting breaks a rule.

    Example:
        >>> data = simulate("two_mass", samples=300, seed=0)
        >>> data.train.input_names, data.test.output_names, len(data.test)
        (('torque',), ('speed',), 300)
    """
    plant = _find(plant)
    length = plant.samples if samples is None else samples
    white = plant.noise if noise is None else (noise,) * len(plant.outputs)
    for value in white:
        check_number("noise", value)
    drift = plant.drift if noise is None else 0.0
    first, *more = plant.tests
    kinds = {"train": plant.train, "test": first, **{type(kind).__name__.lower(): kind for kind in more}}
    return make_dataset(
        {role: _experiment(plant, kind, white, drift) for role, kind in kinds.items()},
        (length, *(length if test_samples is None else test_samples for _ in plant.tests)),
        name=plant.name,
        seed=seed,
        ts=plant.ts,
        inputs=plant.inputs,
        outputs=plant.outputs,
        noise=tuple(math.hypot(value, drift) for value in white),
    )


def _experiment(
    plant: AbstractPlant, excitation: AbstractExcitation, white: Sequence[float], drift: float
) -> Experiment:
    def run(random: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
        waves = [excitation.wave(random, length, plant.ts) for _ in plant.inputs]
        u = np.clip(np.stack(waves, axis=1), *plant.u_range)
        before = round(plant.settle / plant.ts)
        y = response(plant, u[np.arange(-before, length) % length])[before:]
        y = y + np.asarray(white) * random.standard_normal(y.shape)
        return u, y + drift * _drift(random, y.shape) if drift else y

    return run


def _drift(random: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "N ny"]:
    """A slow course, zero mean and unit variance over the record, for each output."""
    t = np.linspace(0.0, np.pi, shape[0])
    lines = np.cos(t[:, None] * np.array(DRIFT_LINES))
    course = lines @ (random.standard_normal((len(DRIFT_LINES), shape[1])) / np.array(DRIFT_LINES)[:, None])
    course -= course.mean(axis=0)
    return course / course.std(axis=0)


def _find(plant: AbstractPlant | str) -> AbstractPlant:
    if not isinstance(plant, str):
        return plant
    if plant not in PLANTS:
        raise ConfigError(unknown_name("plant", plant, PLANTS))
    return PLANTS[plant]()
