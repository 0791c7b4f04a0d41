"""Whether a model is good, in words, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tausid.data.inspection import bad_samples
from tausid.data.records import Record
from tausid.results.report._html import number, share
from tausid.results.residuals import ResidualTest
from tausid.results.runs import Experiment, Run
from tausid.training.parts import Adam
from tausid.training.result import FAR_APART
from tausid.training.run_state import Status

# Least fit in percent for each word. A fit of 85 % leaves an error of 15 % of the output's deviation.
RATINGS = ((95.0, "Excellent"), (85.0, "Good"), (70.0, "Fair"), (50.0, "Rough"), (-np.inf, "Poor"))
# A model that is as bad on training data gets no praise for being no worse on new data.
PRAISED = 0.5
# An error this much larger on new data than on training data is worth a word.
GAP = 1.5
# A training error this much larger than the test error is an alarm: training minimized it.
ALARM = 2.0
# A best step within this share of the last one means that training may not have ended.
UNFINISHED = 0.05
# Models that lie further apart than this share of the outputs' standard deviation are not trusted.
DISAGREE = 0.3


class Level(StrEnum):
    """Whether a reason is for the model, against it, or worth a look."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


GOOD, NOTE, BAD = Level


@dataclass(frozen=True)
class Check:
    """One reason for or against the model."""

    level: Level
    text: str


@dataclass(frozen=True)
class Verdict:
    """How good the model is."""

    word: str  # one word for it
    level: Level  # the same as a level
    sentence: str  # what was measured
    checks: tuple[Check, ...]  # reasons for and against
    gauge: dict[str, float]  # fits in percent of what is compared, by name


def judge(run: Run, tests: Sequence[ResidualTest | str]) -> Verdict:
    """Judge a model by its free run over the first test record, or over the training record where there is none."""
    judged = run.judged
    score = judged.score
    output = max(score.nrmse, key=lambda name: score.nrmse[name])  # the worst one
    fit = score.fit_percent[output]
    word = next(word for least, word in RATINGS if fit >= least) if np.isfinite(fit) else "Unusable"
    level = GOOD if fit >= 85 else NOTE if fit >= 50 else BAD
    if judged.role != "test":  # not to be taken for what it says of new data
        word, level = f"{word} on its training data", NOTE if level == GOOD else level
    linear = run.linear_rmse
    gauge = {"this model": max(fit, 0.0)} if np.isfinite(fit) else {"this model": 0.0}
    if linear is not None:
        gauge["linear model"] = max(100.0 * (1.0 - linear[output] / score.rmse[output] * score.nrmse[output]), 0.0)
    checks = (
        _check_data(run),
        *(Check(NOTE, sentence) for sentence in bad_samples([e.record for e in run.experiments])),
        *_check_gap(run, list(score.nrmse).index(output)),
        *_check_linear(judged, output, linear),
        *_check_residuals(tests),
        *_check_range(run),
        *_check_trust(run),
        _check_training(run),
    )
    return Verdict(word, level, _sentence(judged, output), checks, gauge)


def _sentence(judged: Experiment, output: str) -> str:
    score, kind = judged.score, "a test record" if judged.role == "test" else "its own training record"
    unit = _unit(judged.record, output)
    if score.status != "ok":
        return f"The free-run simulation of {kind}, {judged.record.name}, diverges."
    others = "" if len(score.rmse) == 1 else ", the worst of its outputs,"
    return (
        f"In a free run over {kind} ({judged.record.name}), {output}{others} has an RMSE of "
        f"{number(score.rmse[output])}{unit}, {share(score.nrmse[output])} of its standard deviation. "
        f"Fit: {score.fit_percent[output]:.1f} %."
    )


def _check_data(run: Run) -> Check:
    tests = run.of_role("test")
    if not tests:
        return Check(NOTE, "No test record was given: the scores are of training data and say little about new data.")
    if run.recipe.protocol == "paper":
        return Check(NOTE, "Early stopping looked at the first part of the test record (protocol paper): its score "
                             "is not that of unseen data.")  # fmt: skip
    many = (
        "a test record that training never saw" if len(tests) == 1 else f"{len(tests)} test records, never trained on"
    )
    return Check(GOOD, f"Scored on {many}.")


def _check_gap(run: Run, output: int) -> Iterator[Check]:
    if not run.of_role("test"):
        return
    # By number: a test record may have other names for its columns. Both relative to the training record: what moves
    # less has no larger error.
    scores = [run.of_role(role)[0].score for role in ("train", "test")]
    (train, test), (relative, praised) = (
        [list(values.values())[output] for values in errors]
        for errors in ([s.rmse for s in scores], [s.nrmse for s in scores])
    )
    if not np.isfinite([train, test, relative]).all() or train == 0:
        return
    told = (share(relative), share(relative * test / train))
    words = (
        f"{told[0]} of the training output's standard deviation on the training record, {told[1]} on the test record"
    )
    if train > ALARM * test:
        yield Check(BAD, f"The error is {train / test:.1f} times as large on the training record: {words}. Its data "
                           "are worse: look for outliers, other operating points, or another plant.")  # fmt: skip
    elif test > GAP * train:
        yield Check(NOTE, f"The error is {test / train:.1f} times as large on new data: {words}. More varied "
                            "training data, a smaller network or earlier stopping may help.")  # fmt: skip
    elif praised < PRAISED:
        yield Check(GOOD, f"About as good on new data as on training data: {words}.")


def _check_linear(judged: Experiment, output: str, linear: Mapping[str, float] | None) -> Iterator[Check]:
    if linear is None or judged.score.status != "ok":
        return
    own, other, unit = judged.score.rmse[output], linear[output], _unit(judged.record, output)
    how = "" if judged.record.is_uniform else " (on a uniform clock, onto which the record was interpolated)"
    words = f"the best linear model of the same data has an RMSE of {number(other, 3)}{unit}{how}"
    if own < 0.9 * other:
        factor = f"{other / own:.1f} times smaller than a linear model's" if own > 0 else "gone"
        yield Check(GOOD, f"The error is {factor}: {words}.")
    elif own < 1.1 * other:
        yield Check(NOTE, f"No better than a linear model: {words}. A linear model may do.")
    else:
        yield Check(BAD, f"Worse than a linear model: {words}. Use that one, or train longer.")


def _check_residuals(tests: Sequence[ResidualTest | str]) -> Iterator[Check]:
    for test in tests[:1]:
        if isinstance(test, str):
            yield Check(NOTE, f"The residuals could not be tested: {test}")
        elif test.correlated.any():
            yield from (Check(NOTE, sentence) for sentence in test.missed_dynamics())
        elif test.input_names:
            yield Check(GOOD, "Residuals are not correlated with earlier inputs, as far as this record can tell: "
                                f"up to {test.cross_bound.min():.2f} may be chance.")  # fmt: skip


def _check_range(run: Run) -> Iterator[Check]:
    tests = run.of_role("test")
    if not tests or not tests[0].record.nu:
        return
    u = np.concatenate([experiment.record.u for experiment in run.of_role("train")])
    new = tests[0].record.u
    outside = float(np.mean(((new < u.min(axis=0)) | (new > u.max(axis=0))).any(axis=1)))
    if outside > 0.01:
        yield Check(NOTE, f"{share(outside)} of the test inputs lie outside of the range of the training inputs: the "
                            "model extrapolates there.")  # fmt: skip


def _check_trust(run: Run) -> Iterator[Check]:
    """How well models that were trained independently agree, where the recipe compared some."""
    trust = run.model.provenance.get("trust") or {}
    distance, members = trust.get("distance"), trust.get("members")
    if distance is None:
        return
    level = GOOD if distance <= FAR_APART else NOTE if distance <= DISAGREE else BAD
    told = f"{members} models trained independently agree within {share(distance)} of the outputs' standard deviation"
    yield Check(level, f"{told} on inputs like those of the training data.")
    if trust.get("doubt") is not None:
        yield Check(NOTE, "The model is linear: nonlinear ones have a lower held-out error, but do not agree on what "
                            "they add to it.")  # fmt: skip


def _check_training(run: Run) -> Check:
    status, steps, best = (run.summary.get(name) for name in ("status", "steps", "best_step"))
    if status == Status.DIVERGED:
        return Check(BAD, f"Training diverged: {run.summary.get('message', '')}")
    folds, most = run.model.provenance.get("folds"), run.recipe.trainer.most
    unit = "steps" if isinstance(run.recipe.trainer, Adam) else "iterations"
    early = isinstance(steps, int) and steps < (1 - UNFINISHED) * most
    if folds is not None and status == Status.COMPLETED and early:
        chose = f"{len(folds['scores'])} folds of the training data"
        if steps == folds["chosen"]:
            return Check(GOOD, f"{chose} chose {steps} of at most {most} {unit}.")
        return Check(GOOD, f"The final fit ended after {steps} {unit}; {chose} chose {folds['chosen']}.")
    validated = any(np.isfinite(row.validation) for row in run.history)
    if not validated:
        return Check(NOTE, f"Trained for {steps} {unit} without validation: the model is that of the last step.")
    if (
        status == Status.COMPLETED
        and isinstance(steps, int)
        and isinstance(best, int)
        and best >= (1 - UNFINISHED) * steps
    ):
        return Check(NOTE, f"Training may not have ended: the best of {steps} {unit} is {best}. More may help.")
    return Check(GOOD, f"Training was long enough: the best of {steps} {unit} is {best}.")


def _unit(record: Record, output: str) -> str:
    unit: Any = dict(zip(record.output_names, record.output_units, strict=True))[output]
    return f" {unit}" if unit else ""
