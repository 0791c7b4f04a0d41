"""The page on one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tausid.data.records import Record
from tausid.errors import TausidError
from tausid.model.arrays import named_arrays
from tausid.model.ensembles import AnyModel
from tausid.results import plots
from tausid.results.report._html import number, picture, render
from tausid.results.report._series import VALUES, plot_data
from tausid.results.report._verdict import judge
from tausid.results.residuals import ResidualTest, analyse_residuals
from tausid.results.runs import Experiment, Run, RunFolder

SOURCES = {
    "bla": "Estimated from the training data, sqrt(var(x) / var(dx/dt)) of the states of the best linear approximation",
    "spectrum": "Estimated from the training data, from the spectrum of the best linear approximation's states",
    "cv": "Chosen by cross-validation: the tau whose fits simulate held-out data best",
    "given": "Given by the user",
}


def run_page(run: Run) -> str:
    """The page on a run.

    Args:
        run: the run, from `RunFolder.read` or `Run.from_result`.
    """
    shown = (*run.of_role("test"), *run.of_role("train"))
    tests = [_test_residuals(experiment) for experiment in shown]
    return render(
        "run.html",
        title=run.name or run.experiments[0].record.name,
        verdict=judge(run, tests),
        plots=_time_plots(shown),
        band=_band_picture(shown[0]),
        members=run.model.provenance.get("members", []),
        parameters=_parameter_rows(run.model),
        scores=[row for experiment in run.experiments for row in _score_rows(experiment)],
        residuals=[_residual_section(e, test) for e, test in zip(shown[:1], tests[:1], strict=True)],
        records=[_describe_record(experiment) for experiment in run.experiments],
        scaling=_scaling_rows(run.model),
        provenance=run.model.provenance,
        tau=_describe_tau(run.model),
        tau_path=_tau_picture(run),
        model=_describe_model(run.model),
        settings=_settings(run),
        summary=run.summary,
        history=_history_picture(run),
        command=run.command,
        sources=run.sources,
        model_file=RunFolder("").model_file.name,
        held_out=_held_out(run),
        reading=_reading(run),
        seed=run.model.provenance.get("seed"),
    )


def _held_out(run: Run) -> str:
    """What chose the model, in words."""
    validation, folds = run.model.provenance.get("validation"), run.model.provenance.get("folds")
    if validation:
        return f"the best step was chosen by free runs over {', '.join(validation)}"
    if folds is not None:
        return (
            f"structure and length of the training were chosen by free runs over {len(folds['scores'])} folds of them"
        )
    return "nothing was held out to choose a step by"


def _reading(run: Run) -> dict[str, Any]:
    """How data were read, or would be where that is not known."""
    name, options = run.reading.get("name", "new.csv"), dict(run.reading)
    options.pop("name", None)
    if not run.reading:
        ts = int(run.model.ts) if float(run.model.ts).is_integer() else run.model.ts
        options = {"inputs": list(run.model.input_names), "outputs": list(run.model.output_names), "ts": ts}
    return {"name": name, "options": options}


def _test_residuals(experiment: Experiment) -> ResidualTest | str:
    try:
        return analyse_residuals(experiment.simulation, experiment.record, skip=experiment.skip)
    except TausidError as error:
        return str(error)


def _time_plots(shown: Sequence[Experiment]) -> list[dict[str, Any]]:
    budget = VALUES // len(shown)
    return [
        {
            "title": experiment.record.name,
            "role": experiment.role,
            "samples": len(experiment.record),
            "skipped": experiment.score.n_skipped,
            "status": experiment.simulation.status,
            "data": plot_data(experiment, budget),
        }
        for experiment in shown
    ]


def _band_picture(experiment: Experiment) -> dict[str, str] | None:
    run = experiment.simulation
    if run.low is None or run.high is None:
        return None
    drawn = plots.plot_band(experiment.record, run, low=run.low, high=run.high, label="four fifths of the models")
    return picture(drawn, f"Measured outputs of {experiment.record.name}, mean of the models and the band between them")


def _parameter_rows(model: AnyModel) -> list[tuple[str, str, str, str]]:
    found = {} if model.physics is None else model.physics.parameters
    return [
        (
            name,
            f"{number(p.value, 5)} {p.unit}".rstrip(),
            number(p.deviation, 2),
            f"{number(p.lower)} to {number(p.upper)}",
        )
        for name, p in found.items()
    ]


def _score_rows(experiment: Experiment) -> list[dict[str, Any]]:
    score = experiment.score
    units = experiment.record.output_units
    return [
        {
            "role": experiment.role,
            "record": experiment.record.name,
            "output": output,
            "rmse": f"{number(score.rmse[output])} {unit}".rstrip(),
            "nrmse": number(score.nrmse[output], 3),
            "fit": number(score.fit_percent[output]),
            "scored": score.n_scored,
            "skipped": score.n_skipped,
        }
        for output, unit in zip(score.rmse, units, strict=True)
    ]


def _residual_section(experiment: Experiment, test: ResidualTest | str) -> dict[str, Any]:
    about = {"record": experiment.record.name, "role": experiment.role}
    if isinstance(test, str):
        return {**about, "sentences": [test], "picture": None, "confidence": None}
    alt = f"Correlations of the residuals over {test.record} with themselves and with the inputs"
    drawn = picture(plots.plot_residuals(test), alt)
    return {**about, "sentences": test.describe(), "picture": drawn, "confidence": test.confidence}


def _describe_record(experiment: Experiment) -> dict[str, Any]:
    record = experiment.record
    return {
        "role": experiment.role,
        "name": record.name,
        "samples": len(record),
        "ts": f"{number(record.ts)} s" + ("" if record.is_uniform else ", uneven"),
        "duration": _duration(float(record.t[-1] - record.t[0])),
        "missing": int(np.isnan(record.y).sum()),
        "channels": _channels(record),
        "steps": list(getattr(record, "history", ())),
    }


def _channels(record: Record) -> list[dict[str, str]]:
    rows = []
    for kind, names, units, values in (
        ("input", record.input_names, record.input_units, record.u),
        ("output", record.output_names, record.output_units, record.y),
    ):
        for channel, (name, unit) in enumerate(zip(names, units, strict=True)):
            low, high = np.nanmin(values[:, channel]), np.nanmax(values[:, channel])
            rows.append({"kind": kind, "name": name, "unit": unit, "range": f"{number(low)} to {number(high)}"})
    return rows


def _scaling_rows(model: AnyModel) -> list[tuple[str, str, str]]:
    scaling = model.scaling
    names = (*model.input_names, *model.output_names)
    units = (*model.input_units, *model.output_units)
    means = np.concatenate([scaling.u_mean, scaling.y_mean])
    deviations = np.concatenate([scaling.u_std, scaling.y_std])
    return [
        (name, f"{number(mean)} {unit}".rstrip(), f"{number(deviation)} {unit}".rstrip())
        for name, unit, mean, deviation in zip(names, units, means, deviations, strict=True)
    ]


def _describe_tau(model: AnyModel) -> dict[str, Any]:
    tau = model.state_space.tau
    source = SOURCES.get(tau.source, f"From {tau.source}")
    start, now = _seconds(np.atleast_1d(tau.start)), _seconds(np.atleast_1d(model.tau))
    ended = f", and trained from {start} to {now}." if tau.trainable else f": {now}, fixed during training."
    return {"seconds": now, "ratio": number(model.ts_over_tau), "source": source + ended}


def _seconds(values: np.ndarray) -> str:
    return ", ".join(number(value) for value in values.tolist()) + " s"


def _describe_model(model: AnyModel) -> dict[str, Any]:
    space, structure, integration = model.state_space, model.structure, model.integration
    weights = sum(array.size for array in named_arrays(space).values())
    hidden = ", ".join(map(str, structure.hidden)) or "none"
    parts = {
        "mlp": f"linear part plus hidden layers of {hidden} ({structure.activation})",
        "polynomial": f"polynomial of degree {structure.degree}",
    }
    network = " and a ".join(text for kind, text in parts.items() if structure.network in (kind, "both"))
    start = (
        f"encoder of the last {structure.na} outputs and {structure.nb} inputs"
        if structure.initial_state == "encoder"
        else "a parameter per record; that of a new one is estimated from its first samples"
    )
    if space.physics is not None:
        plant = type(space.physics.plant).__name__
        network = f"{plant}, no correction" if structure.correction == "none" else f"{plant}, corrected by a {network}"
    hold = integration.hold if isinstance(integration.hold, str) else ", ".join(integration.hold)
    return {
        "states": space.nx,
        "inputs": space.nu,
        "outputs": space.ny,
        "network": network,
        "weights": weights,
        "initial state": start,
        "integration": f"{integration.stepper}, {integration.substeps} step(s) per sample, {hold}-order hold",
    }


def _settings(run: Run) -> dict[str, Any]:
    """All settings by the keys that `--set` takes."""
    flat: dict[str, Any] = {}
    for part, values in run.recipe.as_dict().items():
        flat |= (
            {f"{part}.{key}": value for key, value in values.items()} if isinstance(values, dict) else {part: values}
        )
    return flat


def _tau_picture(run: Run) -> dict[str, str] | None:
    if not run.model.state_space.tau.trainable or not run.history:
        return None
    drawn = plots.plot_tau_path(run.history, best_step=run.summary.get("best_step"))
    return picture(drawn, "Tau over the steps of the training")


def _history_picture(run: Run) -> dict[str, str] | None:
    if not run.history:
        return None
    drawn = plots.plot_history(run.history, best_step=run.summary.get("best_step"))
    return picture(drawn, "Errors of training windows and validation over the steps, learning rate and gradient norm")


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
