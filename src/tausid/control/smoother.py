"""States of a whole record from all of its samples, those after each one as well."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from tausid.control.observer import Observer
from tausid.data.records import Record
from tausid.export.delays import acting_inputs
from tausid.export.interpreter import evaluate
from tausid.shapes import Float


@dataclass(frozen=True, eq=False)
class Smoothed:
    """What a whole record says about the states.

    Args:
        t: times of the samples in seconds.
        x: the states, normalized.
        P: their covariances.
        y: the outputs in these states, physical units.
    """

    t: Float[np.ndarray, "N"]
    x: Float[np.ndarray, "N nx"]
    P: Float[np.ndarray, "N nx nx"]
    y: Float[np.ndarray, "N ny"]


def smooth(observer: Observer, record: Record) -> Smoothed:
    """Estimate the states at all samples of a record from the whole of it, for use afterwards (Rauch-Tung-Striebel).

    Args:
        observer: the filter that runs forward, at its start; it is left as it is.
        record: the record; outputs that are NaN were not measured.

    Returns:
        States, covariances and outputs.

    Raises:
        DataError: other channels than the model's.
    """
    own, d = copy.deepcopy(observer), observer.description
    course = [own.update(*sample) for sample in zip(record.u, record.y, record.t, strict=True)]
    x, P = [course[-1].x], [course[-1].P]
    for now, later in zip(course[-2::-1], course[:0:-1], strict=True):
        G = now.P @ later.F.T @ np.linalg.pinv(later.P_predicted, hermitian=True)
        x.append(now.x + G @ (x[-1] - later.predicted))
        P.append(now.P + G @ (P[-1] - later.P_predicted) @ G.T)
    states = np.array(x[::-1])
    y = evaluate(d.g, states, acting_inputs(d, record.u, record.t))
    return Smoothed(record.t, states, np.array(P[::-1]), y)
