"""`tausid tau`: an estimate of tau in words, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tausid.data.records import Record
from tausid.errors import ConfigError
from tausid.linear.tau_estimation import LINEAR_METHODS, TauEstimate, estimate_linear_tau


def estimate(records: Sequence[Record], method: str, nx: str, hold: str, options: dict[str, Any]) -> TauEstimate:
    """Estimate tau; what needs no training does not import what trains."""
    if nx != "auto" and not nx.isdecimal():
        raise ConfigError(f"`--nx` must be a positive whole number or auto; got {nx!r}. Give the number of states.")
    order = nx if nx == "auto" else int(nx)
    if method in LINEAR_METHODS and not options:
        return estimate_linear_tau(records, method=method, nx=order, hold=hold)
    from tausid.study.tau_by_training import estimate_tau

    if method == "cv":
        options = {"out": Path("runs") / f"tau-{Path(records[0].name).stem}", **options}
    if method == "trained" and "out" in options:
        options = {"resume": True, **options}
    return estimate_tau(records, method=method, nx=order, hold=hold, **options)


def estimate_dict(found: TauEstimate, record: Record) -> dict[str, Any]:
    """The estimate as plain JSON values."""
    content: dict[str, Any] = {
        "tau": found.tau,
        "tau_per_state": found.tau_per_state.tolist(),
        "ts_over_tau": found.ts_over_tau,
        "method": found.method,
        "description": found.description,
        "spread": list(found.spread),
    }
    if found.bla is not None:
        content["bla"] = {
            "order": found.bla.order,
            "poles": [[pole.real, pole.imag] for pole in found.bla.poles.tolist()],
            "rmse": dict(zip(record.output_names, found.bla.rmse.tolist(), strict=True)),
            "notes": list(found.bla.notes),
        }
    if found.trials:
        content["trials"] = [
            {"ts_over_tau": t.ts_over_tau, "score": t.score if np.isfinite(t.score) else None, "status": t.status}
            for t in found.trials
        ]
    return content


def describe_estimate(found: TauEstimate, record: Record) -> dict[str, str]:
    """The estimate in words."""
    low, high = found.spread
    words = {
        "tau": f"{found.tau:.4g} s",
        "Ts/tau": f"{found.ts_over_tau:.4g}",
        "per state": ", ".join(f"{value:.4g} s" for value in found.tau_per_state),
        "spread": f"{low:.4g} to {high:.4g} s",
        "how": found.description,
    }
    if found.bla is not None:
        errors = (f"{name} {e:.4g}" for name, e in zip(record.output_names, found.bla.rmse, strict=True))
        words["time constants"] = ", ".join(f"{1 / abs(pole):.4g} s" for pole in found.bla.poles)
        words["linear RMSE"] = ", ".join(errors) + " (free run over the training record)"
        words["notes"] = "; ".join(found.bla.notes) or "none"
    return words
