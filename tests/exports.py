"""Models of every kind that a recipe can give, untrained, and a record for each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tausid import EnsembleModel, Integration, Model, Record, Scaling, Structure, Tau
from tausid.model.build import Weights, build_state_space
from tausid.model.physics import CascadedTanks, KnownPart, MassWithFriction

HOSTILE = ('"; rm -rf / #', "*/ int main(void) {", "Pégel µ\n<&>" + "x" * 500, "x1", "while")
CASES: dict[str, dict] = {
    "leaky": {"hidden": (6, 5)},
    "tanh": {"activation": "tanh", "nu": 2, "ny": 2, "hold": ("zero", "first"), "stepper": "heun", "substeps": 3},
    "cubic": {"network": "polynomial", "bias": True, "nu": 2, "hold": "first", "stepper": "midpoint"},
    "both": {"network": "both", "degree": 2, "bias": True, "ny": 3, "limits": (-0.3, 0.4), "tau": (2.0, 3.0, 5.0)},
    "linear g": {"nonlinear_g": False, "feedthrough": False, "stepper": "euler", "max_dt": 0.11},
    "autonomous": {"nu": 0, "activation": "tanh"},
    "tanks": {"physics": CascadedTanks(), "nx": 2, "max_dt": 0.2},
    "mass": {"physics": MassWithFriction(), "nx": 3, "correction": "network", "bias": True},
}
CASES |= {name: {"activation": name} for name in ("relu", "elu", "gelu", "silu", "sigmoid", "softplus")}


def make_record(nu: int, ny: int, samples: int = 60) -> Record:
    """Samples at uneven times, with one lost stretch in between that is integrated in parts."""
    rng = np.random.default_rng(7)
    t = np.cumsum(np.where(np.arange(samples) % 17 == 5, 1.9, rng.uniform(0.45, 0.55, samples)))
    u, y = rng.normal(3.0, 2.0, (samples, nu)), rng.normal(-1.0, 0.5, (samples, ny))
    return Record.from_arrays(u, y, t=t, input_names=[f"in {i}" for i in range(nu)])


def make_model(case: str, *, seed: int = 0) -> tuple[Model, Record]:
    """A model of that kind, and a record that it can simulate."""
    asked = {"nu": 1, "ny": 1, "tau": 3.0, "limits": None, "physics": None, **CASES[case]}
    nu, ny, tau, limits, plant = (asked.pop(name) for name in ("nu", "ny", "tau", "limits", "physics"))
    how = {name: asked.pop(name) for name in ("hold", "stepper", "substeps", "max_dt") if name in asked}
    structure = Structure(**{"nx": 3, "hidden": (8,), **asked})
    record = make_record(nu, ny)
    scaling = Scaling.from_records(record)
    physics = None if plant is None else KnownPart.start(plant, scaling, trainable=False)
    space = build_state_space(
        structure, Tau(tau), Weights(0.3, 0.2), nu=nu, ny=ny, n_records=1, rng=np.random.default_rng(seed),
        physics=physics,
    )  # fmt: skip
    rng = np.random.default_rng(seed + 1)
    for name in ("f", "g"):  # a constant term, and a correction, start at zero
        part = getattr(space, name)
        if part.bias is not None and (plant is None or name == "f"):
            part = replace(part, bias=rng.normal(0, 0.2, part.bias.shape), linear=part.linear + 0.0)
            part = part.with_readout(rng.normal(0, 0.2, part.readout.shape))
        space = replace(space, **{name: part})
    space = replace(space, limits=None if limits is None else (limits,) * ny)
    model = Model(
        space, scaling, structure, Integration(**how), record.ts, record.input_names, record.output_names,
        record.input_units, record.output_units,
    )  # fmt: skip
    return model, record


def make_ensemble(members: int = 5) -> tuple[EnsembleModel, Record]:
    """Members of two structures."""
    models = [make_model(("leaky", "softplus")[seed % 2], seed=seed)[0] for seed in range(members)]
    models = [replace(model, integration=models[0].integration) for model in models]
    return EnsembleModel(tuple(models), (1.0,) * members), make_model("leaky")[1]


def hostile(model: Model, record: Record) -> Model:
    """The model with channels whose names are anything but names."""
    names = HOSTILE[: len(model.input_names)], HOSTILE[-len(model.output_names) :]
    units = (HOSTILE[0],) * len(model.input_names), (HOSTILE[2],) * len(model.output_names)
    return replace(
        model, input_names=names[0], output_names=names[1], input_units=units[0], output_units=units[1]
    )  # fmt: skip


def delayed(case: str = "tanh") -> tuple[Model, Record]:
    """A model whose inputs act late: held ones by samples, interpolated ones by any time."""
    model, record = make_model(case)
    return replace(model, delays=(1.3, 2.37)[: len(model.input_names)]), record
