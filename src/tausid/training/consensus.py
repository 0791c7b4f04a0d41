"""Models that were trained independently, compared with inputs that none of them was trained with.

Those that have learnt the plant agree; each that has not is wrong in its own way. No outputs are needed for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tausid.data.records import Record
from tausid.model.model import Model
from tausid.shapes import Float

# Blocks that the inputs of a record are cut into, and how much larger some of them are.
BLOCKS, LARGER = 8, 1.2
# Samples of a probe, at most, and deviations beyond which a simulation is as wrong as it can be.
PROBE_SAMPLES, FAR = 4096, 3.0


@dataclass(frozen=True, eq=False)
class Consensus:
    """How far members lie from their median.

    Args:
        distances: of each member, the root mean square over probes, in deviations of the outputs.
    """

    distances: Float[np.ndarray, "members"]

    @property
    def order(self) -> list[int]:
        """The members, the one nearest to the median first."""
        return np.argsort(self.distances, kind="stable").tolist()

    @property
    def spread(self) -> float:
        """The distance of the median member."""
        return float(np.median(self.distances))


def compare(members: Sequence[Model], records: Sequence[Record], seed: int) -> Consensus:
    """How far the members' simulations of probes lie from their median."""
    probes = [probe for record in records for probe in _probes(record, np.random.default_rng([seed, 2]))]
    simulations = np.stack([_simulate(member, probes) for member in members])
    middle = np.median(simulations, axis=0)
    deviation = np.maximum(members[0].scaling.y_std, middle.std(axis=0))  # a plant that integrates goes far with probes
    away = np.clip((simulations - middle) / deviation, -FAR, FAR)
    return Consensus(np.sqrt(np.mean(away**2, axis=(1, 2))))


def _probes(record: Record, rng: np.random.Generator) -> list[Record]:
    """The inputs of a record with its blocks in another order, backwards, and somewhat larger.

    Outputs are those of the record's beginning, which the initial state is found from.
    """
    record = record.part(0, min(len(record), PROBE_SAMPLES))
    N, mean = len(record), record.u.mean(axis=0)
    starts = np.array_split(np.arange(N), min(BLOCKS, N))
    mixed = np.concatenate([starts[i] for i in rng.permutation(len(starts))])
    inputs = (record.u[mixed], record.u[::-1], mean + LARGER * (record.u[mixed[::-1]] - mean))
    return [dataclasses.replace(record, u=np.ascontiguousarray(u)) for u in inputs]


def _simulate(member: Model, probes: Sequence[Record]) -> Float[np.ndarray, "N ny"]:
    """The outputs of all probes, from the expected state; far away where one diverges."""
    x0 = expected_state(member)
    found = [member.simulate(probe, x0=x0, throw=False).y for probe in probes]
    far = member.scaling.y_mean + 2 * FAR * member.scaling.y_std
    return np.concatenate([np.where(np.isfinite(y), y, far) for y in found])


def expected_state(member: Model) -> Float[np.ndarray, "nx"] | None:
    """The mean state of training, where the model knows it."""
    expected = getattr(member.state_space.initial, "expected", None)
    return None if expected is None else np.asarray(expected, float)
