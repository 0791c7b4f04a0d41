"""Models that were trained independently, compared with inputs that none of them was trained with.

Those that have learnt the plant agree; each that has not is wrong in its own way. No outputs are needed for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tausid.data.records import Record
from tausid.model.model import Model
from tausid.shapes import Float

# Blocks that a record is cut into, and how much larger some of their inputs are.
BLOCKS, LARGER = 8, 1.2
# Samples of a record that are looked at, and deviations beyond which a simulation is as wrong as it can be.
PROBE_SAMPLES, FAR = 4096, 3.0


@dataclass(frozen=True, eq=False)
class Consensus:
    """How far members lie from their median.

    Args:
        distances: of each member, the root mean square over probes, in deviations of the outputs.
        departure: of the median from that of other models, likewise; infinite without such.
    """

    distances: Float[np.ndarray, "members"]
    departure: float = np.inf

    @property
    def order(self) -> list[int]:
        """The members, the one nearest to the median first."""
        return np.argsort(self.distances, kind="stable").tolist()

    @property
    def spread(self) -> float:
        """The distance of the median member."""
        return float(np.median(self.distances))

    @property
    def doubt(self) -> float:
        """How far members lie apart, as a share of what sets them apart from the other models, at most a deviation."""
        return self.spread / min(self.departure, 1.0) if self.departure > 0 else np.inf


class Panel:
    """Models that are compared by their simulations of probes; each model simulates them once.

    Args:
        records: what the models were trained with.
        seed: of the inputs of the probes.
    """

    def __init__(self, records: Sequence[Record], seed: int) -> None:
        self._parts = [record.part(0, min(len(record), PROBE_SAMPLES)) for record in records]
        self._probes = [probe for part in self._parts for probe in _probes(part, np.random.default_rng([seed, 2]))]
        self._simulated: dict[Model, Float[np.ndarray, "N ny"]] = {}

    def compare(self, members: Sequence[Model], others: Sequence[Model] = ()) -> Consensus:
        """How far the members' simulations lie from their median, and that from the median of other models."""
        simulations = np.stack([self._simulate(member) for member in members])
        middle = np.median(simulations, axis=0)
        # A plant that integrates goes far with probes.
        deviation = np.maximum(members[0].scaling.y_std, middle.std(axis=0))
        if others:
            other = np.median([self._simulate(model) for model in others], axis=0)
            simulations = np.concatenate([simulations, other[None]])
        away = np.clip((simulations - middle) / deviation, -FAR, FAR)
        distances = np.sqrt(np.mean(away**2, axis=(1, 2)))
        return Consensus(distances[: len(members)], float(distances[-1]) if others else np.inf)

    def _simulate(self, model: Model) -> Float[np.ndarray, "N ny"]:
        if model not in self._simulated:
            self._simulated[model] = _simulate(model, self._parts, self._probes)
        return self._simulated[model]


@dataclass(frozen=True, eq=False)
class _Probe:
    """Inputs that no member was trained with, from the state at a sample of a record that it was trained with."""

    source: Record
    start: int
    record: Record


def _probes(record: Record, rng: np.random.Generator) -> list[_Probe]:
    """Each block of a record with the inputs of another block, with its own ones backwards, and with larger ones."""
    edges = np.linspace(0, len(record), min(BLOCKS, len(record) // 2) + 1).astype(int)
    blocks, mean = list(pairwise(edges.tolist())), record.u.mean(axis=0)
    probes = []
    for (start, stop), other in zip(blocks, rng.permutation(len(blocks)), strict=True):
        own, begin = record.part(start, stop), min(blocks[other][0], len(record) - (stop - start))
        inputs = (record.u[begin : begin + stop - start], own.u[::-1], mean + LARGER * (own.u - mean))
        probes += [_Probe(record, start, dataclasses.replace(own, u=np.ascontiguousarray(u))) for u in inputs]
    return probes


def _simulate(member: Model, records: Sequence[Record], probes: Sequence[_Probe]) -> Float[np.ndarray, "N ny"]:
    """The outputs of all probes, each from the member's own state at its start; far away where one diverges."""
    states = {id(record): member.simulate(record, throw=False).x for record in records}
    far = member.scaling.y_mean + 2 * FAR * member.scaling.y_std
    found = []
    for probe in probes:
        x0 = states[id(probe.source)][probe.start]
        if np.isfinite(x0).all():
            y = member.simulate(probe.record, x0=x0, throw=False).y
        else:
            y = np.full((len(probe.record), probe.record.ny), np.nan)
        found.append(np.where(np.isfinite(y), y, far))
    return np.concatenate(found)
