"""Ensembles: training side by side, the mean and its band, pruning, files, interruption."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import time
from collections.abc import Callable

import jax.numpy as jnp
import jaxtyping
import numpy as np
import problems
import pytest
from problems import wiener_record

import tausid
from tausid import ConfigError, DivergenceError, StorageError
from tausid.model.ensembles import EnsembleModel, trimmed_mean
from tausid.storage import write_arrays
from tausid.training.ensemble import Plan, combine, train_members
from tausid.training.holdout import Split
from tausid.training.interruption import interruptible
from tausid.training.processes import LocalWorkers, usable_cores
from tausid.training.progress import ProgressUpdate

SMALL = {"recipe": "windows", "nx": 2, "tau": 2.0, "settings": {**problems.SMALL, "trainer.learning_rate": 0.01}}
QUIET = {"progress": None, "workers": 1}


@pytest.fixture(scope="module")
def fitted():
    return tausid.fit(wiener_record(200), seed=3, ensemble=3, **SMALL, **QUIET)


def with_outputs(model: tausid.Model, factor: float) -> tausid.Model:
    """The same model with its outputs, less their mean, so many times as large."""
    g = model.state_space.g
    g = dataclasses.replace(g, linear=factor * g.linear).with_readout(factor * g.readout)
    return dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, g=g))


def broken(model: tausid.Model) -> tausid.Model:
    f = dataclasses.replace(model.state_space.f, linear=jnp.full_like(model.state_space.f.linear, jnp.nan))
    return dataclasses.replace(model, state_space=dataclasses.replace(model.state_space, f=f))


def test_members_are_the_fits_of_their_seeds(fitted):
    assert isinstance(fitted.model, EnsembleModel)
    assert sorted(result.seed for result in fitted.members) == [3, 4, 5]
    record = wiener_record(200)
    for result in fitted.members:
        alone = tausid.fit(record, seed=result.seed, progress=None, **SMALL)
        np.testing.assert_array_equal(alone.model.simulate(record).y, result.model.simulate(record).y)


def test_members_are_ranked_by_their_held_out_error(fitted):
    assert list(fitted.model.scores) == sorted(fitted.model.scores)
    held_out = [min(row.validation for row in result.history) for result in fitted.members]
    np.testing.assert_allclose(fitted.model.scores, held_out)
    listed = fitted.model.provenance["members"]
    assert [entry["kept"] for entry in listed] == [True] * 3
    assert [entry["seed"] for entry in listed] == [result.seed for result in fitted.members]


def test_the_worst_are_left_out(fitted):
    kept = tausid.fit(wiener_record(200), seed=3, ensemble=3, keep=1, **SMALL, **QUIET)
    assert [m.provenance["seed"] for m in kept.model.members] == [fitted.members[0].seed]
    assert [entry["kept"] for entry in kept.model.provenance["members"]] == [True, False, False]
    assert "1 of 3 members are kept" in kept.message


def test_the_mean_is_robust_and_the_band_is_that_of_the_members(fitted):
    record, model = wiener_record(200), fitted.model.members[0]
    factors = np.array([1.0, 1.1, 1.2, 1.3, 100.0])
    ensemble = EnsembleModel(tuple(with_outputs(model, f) for f in factors), (1.0,) * 5)
    whole, one = ensemble.simulate(record), model.simulate(record)
    shape = (one.y - model.scaling.y_mean)[one.n_skipped :]
    got = [(values - model.scaling.y_mean)[one.n_skipped :] for values in (whole.y, whole.low, whole.high)]
    ends = np.sort(np.quantile(factors, [0.1, 0.9])[:, None, None] * shape, axis=0)
    # Single precision. Where the output is below its mean, the order of the members turns round.
    np.testing.assert_allclose(got[0], 1.2 * shape, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got[1:], ends, rtol=1e-4, atol=1e-4)
    assert np.all(whole.low[one.n_skipped :] <= whole.high[one.n_skipped :])
    assert (whole.n_skipped, whole.status, whole.initial_state) == (one.n_skipped, "ok", "encoder")


def test_the_mean_of_few_is_their_median():
    assert trimmed_mean(np.array([1.0, 2.0])).item() == 1.5
    assert trimmed_mean(np.array([9.0, 1.0, 2.0])).item() == 2.0
    assert trimmed_mean(np.arange(10.0)).item() == 4.5


def test_members_that_diverge_are_left_out(fitted):
    record, model = wiener_record(200), fitted.model.members[0]
    half = EnsembleModel((broken(model), model), (0.1, 0.2))
    np.testing.assert_array_equal(half.simulate(record).y, model.simulate(record).y)
    none = EnsembleModel((broken(model), broken(model)), (0.1, 0.2))
    with pytest.raises(DivergenceError, match="none of 2"):
        none.simulate(record)
    assert none.simulate(record, throw=False).status == "diverged"
    assert tausid.evaluate(none, record).status == "diverged"


@pytest.mark.parametrize("validation", [(), (wiener_record(200),)], ids=["nothing held out", "held out"])
def test_members_whose_training_diverged_are_left_out(fitted, validation):
    good, *others = fitted.members
    lost = [dataclasses.replace(result, status="diverged") for result in others]
    split = Split((wiener_record(200),), validation)
    some = combine([*lost, good], split, keep=None, interrupted=False)
    assert (some.status, some.model.members, some.seed) == ("completed", (good.model,), good.seed)
    assert [entry["kept"] for entry in some.model.provenance["members"]] == [True, False, False]
    none = combine(lost, split, keep=2, interrupted=False)
    assert (none.status, len(none.model.members)) == ("diverged", 1)
    assert "all 2 members diverged" in none.message


def test_an_ensemble_is_one_file(fitted, tmp_path):
    record, path = wiener_record(200), tmp_path / "model.safetensors"
    again = tausid.load_model(fitted.model.save(path))
    assert isinstance(again, EnsembleModel)
    assert again.scores == fitted.model.scores
    for name in ("y", "low", "high"):
        np.testing.assert_array_equal(
            getattr(again.simulate(record), name), getattr(fitted.model.simulate(record), name)
        )
    assert (again.tau, again.ts, again.output_names, again.provenance) == (
        fitted.model.tau, fitted.model.ts, fitted.model.output_names, fitted.model.provenance,
    )  # fmt: skip
    again.check(record)
    assert "EnsembleModel(3 members" in repr(again) and "seed" in again._repr_html_()


def test_a_file_that_describes_no_ensemble_is_refused(tmp_path):
    path = write_arrays(tmp_path / "bad.safetensors", {}, kind="model", content={"members": []})
    with pytest.raises(StorageError, match="must be as tausid writes it"):
        tausid.load_model(path)
    path = write_arrays(tmp_path / "bad.safetensors", {}, kind="model", content={"members": 2})
    with pytest.raises(StorageError, match="Expected `array`, got `int` - at `\\$.members`"):
        tausid.load_model(path)


def test_without_validation_members_stay_in_the_order_of_their_seeds(fitted):
    by_seed = sorted(fitted.members, key=lambda member: member.seed)
    result = combine(by_seed, Split((wiener_record(200),), ()), keep=None, interrupted=False)
    assert [model.provenance["seed"] for model in result.model.members] == [3, 4, 5]
    assert np.isnan(result.model.scores).all()
    assert result.model.provenance["members"][0]["error"] is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ensemble": 1}, "`ensemble` must be a whole number from 2"),
        ({"ensemble": 2.5}, "`ensemble` must be"),
        ({"ensemble": 2, "keep": 3}, "`keep` must be a whole number from 1 to 2"),
        ({"ensemble": 2, "workers": 0}, "`workers` must be"),
        ({"keep": 2}, "`keep` must come with `ensemble`; got keep=2 alone"),
        ({"workers": 2}, "`workers` must come with `ensemble`"),
        ({"ensemble": 2, "keep": 1, "holdout": None}, "must have held-out data"),
    ],
)
def test_wrong_numbers_are_refused(settings, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, whose types nobody checks
    with pytest.raises(ConfigError, match=message):
        tausid.fit(wiener_record(200), seed=0, progress=None, **SMALL, **settings)


def test_wrong_ensembles_are_refused(fitted):
    model = fitted.model.members[0]
    with pytest.raises(ConfigError, match="one score each"):
        EnsembleModel((model,), ())
    with pytest.raises(ConfigError, match="same channels"):
        EnsembleModel((model, dataclasses.replace(model, input_names=("other",))), (1.0, 1.0))
    with pytest.raises(ConfigError, match="'encoder', 'refine', 'rest', outputs"):
        fitted.model.simulate(wiener_record(200), x0=[0.0, 0.0])


def test_progress_speaks_of_all_members(capsys):
    updates = []
    tausid.fit(wiener_record(200), seed=0, ensemble=2, workers=1, progress=updates.append, **SMALL)
    assert (updates[-1].step, updates[-1].max_steps, updates[-1].status) == (120, 120, "completed")
    assert updates[-1].note == "2 of 2 members"
    assert updates[0].step == 20
    tausid.fit(wiener_record(200), seed=0, ensemble=2, workers=1, **SMALL)
    assert "2 of 2 members, step 120/120" in capsys.readouterr().err


def test_an_interrupted_ensemble_resumes_to_the_same_models(fitted, tmp_path):
    """Ctrl-C in the first of three chunks of the second member: the first is done, the third not begun."""
    updates = []

    def stop(update: ProgressUpdate) -> None:
        updates.append(update)
        if update.step == 80:
            signal.raise_signal(signal.SIGINT)

    fit = functools.partial(tausid.fit, wiener_record(200), seed=3, ensemble=3, workers=1, out=tmp_path, **SMALL)
    stopped = fit(progress=stop)
    assert stopped.status == "interrupted" and "resume" in stopped.message
    assert {result.seed: result.status for result in stopped.members} == {3: "completed", 4: "interrupted"}
    assert (updates[-1].status, updates[-1].note, updates[-1].step) == ("interrupted", "1 of 3 members", 100)
    with pytest.raises(ConfigError, match="holds one"):
        fit(progress=None)
    resumed = fit(resume=True, progress=None)
    assert (resumed.status, resumed.model.scores) == ("completed", fitted.model.scores)


def test_ctrl_c_between_two_members_ends_the_ensemble():
    def stop(update: ProgressUpdate) -> None:
        if update.step == 60 and update.status == "running":
            signal.raise_signal(signal.SIGINT)

    result = tausid.fit(wiener_record(200), seed=3, ensemble=2, workers=1, progress=stop, **SMALL)
    assert (result.status, [member.status for member in result.members]) == ("interrupted", ["completed"])


def test_processes_give_the_same_and_more_members_can_be_added(fitted, tmp_path):
    two = tausid.fit(wiener_record(200), seed=3, ensemble=2, workers=2, out=tmp_path, progress=None, **SMALL)
    three = tausid.fit(wiener_record(200), seed=3, ensemble=3, out=tmp_path, resume=True, **SMALL, **QUIET)
    assert [result.seed for result in three.members] == [result.seed for result in fitted.members]
    # Another process: the same program, and so the same numbers but for how XLA was told to optimise.
    np.testing.assert_allclose(three.model.scores, fitted.model.scores, rtol=1e-3)
    seconds = {result.seed: result.seconds for result in three.members}
    assert seconds.items() >= {result.seed: result.seconds for result in two.members}.items()  # not trained again


def report_until_ctrl_c(seed: int, progress: Callable[[ProgressUpdate], None], **_: object) -> int:
    with interruptible() as interrupted:
        while not interrupted.is_set():
            progress(ProgressUpdate(1, 9, 1.0, 1.0, 1.0, 1, 0, 1.0, "running"))
            time.sleep(0.01)
    return seed


def test_ctrl_c_reaches_all_processes(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # what stands for a fit gives back its seed
    plan = Plan(report_until_ctrl_c, {}, (7, 8, 9), 9, None)
    updates = []

    def stop_when_two_are_at_work(update: ProgressUpdate) -> None:
        updates.append(update)
        if update.step == 2 and update.status == "running" and update.note == "0 of 3 members":
            signal.raise_signal(signal.SIGINT)

    assert train_members(plan, stop_when_two_are_at_work, workers=2) == [7, 8]
    assert (updates[-1].status, updates[-1].note) == ("interrupted", "2 of 3 members")


def die_if_first(seed: int, **_: object) -> None:
    if seed == 0:
        os._exit(9)


def test_a_member_whose_process_dies_twice_ends_the_fit():
    with pytest.raises(tausid.TausidError, match="member 0 of the ensemble must end by itself; its process died twice"):
        train_members(Plan(die_if_first, {}, (0, 1), 9, None), print, workers=2)


def test_workers_are_told_what_to_do_first(tmp_path):
    with LocalWorkers(1, initializer=os.chdir, initargs=(tmp_path,)) as pool:
        assert pool.submit(os.getcwd).result() == os.path.realpath(tmp_path)
        assert pool.submit(usable_cores).result() == 1  # other workers have the others
