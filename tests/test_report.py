"""Pages on runs and studies: what they say, that they say it safely, and that no peak is lost."""

from __future__ import annotations

import base64
import builtins
import dataclasses
import json
import re

import numpy as np
import pytest
from pages import SCRIPT, run_with, sines, with_linear, with_recipe, write_study
from problems import wiener_record

from tausid import Record, StorageError
from tausid.errors import ConfigError, MissingExtraError
from tausid.model.course import Simulation
from tausid.results.report import run_page, study_page, write_report
from tausid.results.report._html import number, share
from tausid.results.report._series import VALUES, bucket_width, plot_data, thin
from tausid.results.report._verdict import judge
from tausid.results.residuals import analyse_residuals
from tausid.results.runs import Experiment, Run, RunFolder
from tausid.study import read_results
from tausid.training import start
from tausid.training.parts import Adam, Folds, PaperTestHalf


@pytest.fixture(scope="module")
def run() -> Run:
    return with_linear(run_with([("train", sines(400), 0.05), ("test", sines(300, name="other"), 0.1)]))


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return run_page(run)


def text_of(page: str) -> str:
    """What a reader sees, roughly: tags and scripts taken out, whitespace joined."""
    shown = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown))


def test_the_page_says_what_a_reader_needs(page):
    text = text_of(page)
    for words in (
        "plant", "Good", "level has an RMSE of 0.07", "mm, ", "train: log", "test: other", "tau = 2 s",
        "Given by the user", "Ts/tau = 0.25", "pump", "400 samples", "tausid fit log.csv", "00ff", "hidden layers of 4",
        "encoder of the last 5 outputs", "completed: all steps taken", "load_model",
    ):  # fmt: skip
        assert words in text, words


def test_the_page_needs_nothing_from_elsewhere(page):
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "http://" not in re.sub(r"data:image[^\"]*", "", page)
    assert "https://" not in re.sub(r"data:image[^\"]*", "", page)
    assert "@import" not in page
    assert len(page) < 5e6
    assert "default-src 'none'" in page


def test_the_same_run_gives_the_same_page(run, page):
    assert run_page(run) == page


def test_names_from_data_stay_text():
    record = sines(
        200, input=SCRIPT, output='"><img src=x onerror=alert(1)>', name="</script><script>alert(2)</script>"
    )
    page = run_page(run_with([("train", record, 0.1)], name=SCRIPT, command=SCRIPT, sources={SCRIPT: SCRIPT}))
    own = re.findall(r"<script(?: [^>]*)?>", page)
    assert own == ['<script type="application/json" id="plot-1">', "<script>"]
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_five_lines_run_with_any_names():
    record = sines(200, input='it\'s "<u>"', output="y\\")
    page = run_page(run_with([("train", record, 0.1)]))
    code = page.split('id="load"')[1].split("<pre>")[1].split("</pre>")[0]
    assert len(code.splitlines()) == 5
    names = re.findall(r"inputs=(\[.*?\]), outputs=(\[.*?\]), ts", code)[0]
    assert [eval(text) for text in names] == [['it\'s "<u>"'], ["y\\"]]


@pytest.mark.parametrize(
    ("size", "word"), [(0.02, "Excellent"), (0.1, "Good"), (0.2, "Fair"), (0.4, "Rough"), (2.0, "Poor")]
)
def test_the_verdict_goes_by_the_fit(size, word):
    # The record's deviation is 0.71 and the error's size / sqrt(2): the NRMSE is the size, within some percent.
    run = run_with([("train", sines(400), size), ("test", sines(400), size)])
    verdict = judge(run, [])
    assert verdict.word == word
    assert f"{100 * (1 - size):.0f}"[:1] == f"{verdict.gauge['this model']:.0f}"[:1] or word == "Poor"


def test_a_diverged_simulation_is_unusable(run):
    first = run.of_role("test")[0]
    y = np.full_like(first.record.y, np.inf)
    broken = Simulation(first.record.t, y, first.simulation.x, 5, "diverged", first.record.output_names)
    bad = dataclasses.replace(
        run, experiments=(run.experiments[0], Experiment("test", first.record, broken)),
        summary={**run.summary, "status": "diverged", "message": "try a larger tau"},
    )  # fmt: skip
    verdict = judge(bad, [])
    assert (verdict.word, verdict.level) == ("Unusable", "bad")
    assert "diverges" in verdict.sentence
    assert "Training diverged: try a larger tau" in text_of(run_page(bad))


def checks_of(run: Run) -> dict[str, str]:
    shown = (*run.of_role("test"), *run.of_role("train"))
    return {
        check.text: check.level
        for check in judge(run, [analyse_residuals(e.simulation, e.record) for e in shown]).checks
    }


def level_of(run: Run, words: str) -> str:
    (level,) = [level for text, level in checks_of(run).items() if words in text]
    return level


def test_reasons_for_and_against_are_given(run):
    assert level_of(run, "Scored on a test record that training never saw") == "good"
    assert level_of(run, "times as large on new data: 5") == "note"
    assert level_of(run, "Training was long enough: the best of 200 steps is 100") == "good"
    late = dataclasses.replace(run, summary={**run.summary, "best_step": 200})
    assert level_of(late, "Training may not have ended") == "note"
    folds = {"scores": [[0.5]] * 4, "chosen": 200, "steps": [200], "pooled": [0.5]}
    folded = with_provenance(with_recipe(late, holdout=Folds(4), trainer=Adam(steps=1000)), folds=folds)
    assert level_of(folded, "4 folds of the training data chose 200 of at most 1000 steps") == "good"
    sooner = with_provenance(folded, folds={**folds, "chosen": 300})
    assert level_of(sooner, "ended after 200 steps; 4 folds of the training data chose 300") == "good"
    alone = dataclasses.replace(run, experiments=run.experiments[:1])
    assert level_of(alone, "No test record was given") == "note"
    unseen = dataclasses.replace(run, history=())
    assert level_of(unseen, "without validation") == "note"
    paper = with_recipe(run, holdout=PaperTestHalf())
    assert level_of(paper, "protocol paper") == "note"


def test_a_linear_plant_needs_no_nonlinear_model(run):
    """The record is the response of a linear plant, and the free run misses it: a linear model is better."""
    assert level_of(run, "Worse than a linear model") == "bad"


def test_a_nonlinear_plant_is_worth_a_nonlinear_model():
    record = wiener_record(400)
    assert level_of(with_linear(run_with([("train", record, 0.01)])), "smaller than a linear model's") == "good"


def test_a_page_on_a_run_on_disk_fits_nothing(run, tmp_path, monkeypatch):
    RunFolder(tmp_path).write(run)

    def refuse(*arguments):
        raise AssertionError("a report must not fit anything")

    monkeypatch.setattr(start, "approximate", refuse)
    text = text_of(write_report(tmp_path).read_text())
    linear = json.loads((tmp_path / "result.json").read_text())["linear_rmse"]
    assert linear == run.linear_rmse
    assert f"the best linear model of the same data has an RMSE of {number(linear['level'], 3)} mm" in text


def test_a_poor_model_is_not_praised_for_being_poor_everywhere():
    poor = run_with([("train", sines(400), 0.9), ("test", sines(400), 0.9)])
    assert not [text for text in checks_of(poor) if "About as good" in text]


def test_inputs_outside_of_the_training_range_are_named():
    wide = Record.from_arrays(2 * sines(300).u, sines(300).y, ts=2.0, input_names=["pump"], output_names=["level"])
    run = run_with([("train", sines(400), 0.1), ("test", wide, 0.1)])
    assert level_of(run, "lie outside of the range of the training inputs") == "note"


def test_test_records_may_have_other_names(run):
    renamed = run_with([("train", sines(400), 0.1), ("test", sines(300, input="u2", output="y2"), 0.1)])
    assert level_of(renamed, "About as good on new data as on training data") == "good"
    assert "y2 has an RMSE of" in judge(renamed, []).sentence


def test_residuals_that_follow_the_input_are_named_in_the_verdict():
    rng = np.random.default_rng(0)
    u = rng.normal(size=500)
    record = Record.from_arrays(u, np.convolve(u, [1.0, 0.5, 0.2])[:500], ts=2.0)
    missed = Simulation(record.t, record.y - np.roll(u, 3)[:, None] * 0.2, record.y, 5, "ok", record.output_names)
    whole = dataclasses.replace(run_with([("train", record, 0.1)]), experiments=(Experiment("train", record, missed),))
    assert level_of(whole, "correlated with u at lags 6 s") == "note"
    assert "the model misses dynamics there" in text_of(run_page(whole))


def test_a_training_error_far_above_the_test_error_is_an_alarm():
    clean = sines(400)
    spoiled = dataclasses.replace(clean, y=np.where(np.arange(400)[:, None] % 100 == 50, 30.0 + clean.y, clean.y))
    run = run_with([("train", spoiled, 0.5), ("test", sines(300, name="other"), 0.05)])
    assert level_of(run, "times as large on the training record") == "bad"
    assert level_of(run, "level has 4 outliers") == "note"
    assert not [check for check in judge(run, []).checks if "About as good" in check.text]


def test_jitter_leaves_the_comparison_with_a_linear_model():
    record = sines(400)
    jittered = dataclasses.replace(record, t=record.t + np.random.default_rng(0).uniform(-0.01, 0.01, 400))
    run = with_linear(run_with([("train", jittered, 0.05)]))
    assert run.linear_rmse is not None
    assert level_of(run, "on a uniform clock, onto which the record was interpolated")


def test_a_model_without_a_test_record_is_no_praise_for_new_data():
    verdict = judge(run_with([("train", sines(400), 0.02)]), [])
    assert (verdict.word, verdict.level) == ("Excellent on its training data", "note")


def test_words_on_what_was_held_out_agree_with_what_happened():
    run = with_provenance(run_with([("train", sines(400), 0.1)]), validation=[])
    assert "nothing was held out to choose a step by" in text_of(run_page(run))
    folds = {"scores": [[0.5], [0.5], [0.5]], "chosen": 200, "steps": [200], "pooled": [0.5]}
    folded = with_provenance(run, folds=folds)
    assert "free runs over 3 folds of them" in text_of(run_page(folded))
    assert "chosen by free runs over log" in text_of(run_page(with_provenance(run, validation=["log[300:400]"])))


def test_the_report_says_how_well_fits_agree_and_why_a_model_is_linear():
    trust = {"held_out": 0.1, "linear": 0.1, "members": 5, "distance": 0.01}
    run = run_with([("train", sines(400), 0.1)])
    agreed, gave_way = (with_provenance(run, trust=told) for told in (trust, {**trust, "doubt": 0.8}))
    assert level_of(agreed, "5 models trained independently agree within 1") == "good"
    assert "nonlinear ones have a lower held-out error" not in text_of(run_page(agreed))
    assert level_of(gave_way, "nonlinear ones have a lower held-out error") == "note"


def test_the_snippet_repeats_how_data_were_read():
    options = {"inputs": ["pump"], "outputs": ["level"], "time": "t", "units": {"pump": "V", "level": "mm"}}
    run = run_with([("train", sines(200), 0.1)], reading={"name": "log.mat", **options})
    code = run_page(run).split('id="load"')[1].split("<pre>")[1].split("</pre>")[0]
    called = re.search(r"tausid\.read\((.*)\)\n", code)[1]
    assert eval(f"dict(name={called})") == {"name": "log.mat", **options}
    unknown = run_with([("train", sines(200), 0.1)])
    assert ", ts=2)" in run_page(dataclasses.replace(unknown, model=dataclasses.replace(unknown.model, ts=2.0)))
    named = run_with([("train", sines(200), 0.1)], reading={"name": "@duffing"})
    assert 'tausid.datasets.load("duffing").test' in run_page(named)


def with_provenance(run: Run, **entries: object) -> Run:
    model = dataclasses.replace(run.model, provenance={**run.model.provenance, **entries})
    return dataclasses.replace(run, model=model)


def test_uneven_sampling_is_no_obstacle():
    t = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 200))
    record = Record.from_arrays(np.sin(t), np.cos(t), t=t, name="uneven")
    text = text_of(run_page(run_with([("train", record, 0.1)])))
    assert "the residuals were interpolated onto a clock" in text
    assert ", uneven" in text


def test_several_channels_and_missing_outputs_are_shown():
    y = np.random.default_rng(0).normal(size=(300, 2))
    y[50:60, 1] = np.nan
    u = np.random.default_rng(1).normal(size=(300, 2))
    record = Record.from_arrays(u, y, ts=1.0)
    text = text_of(run_page(run_with([("train", record, 0.1)])))
    assert "10 outputs missing" in text
    assert "the worst of its outputs" in text
    assert text.count("Residuals of y2 are") == 3


def decoded(series: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(series["values"]), "<f4").astype(float) + series["offset"]


def test_short_records_are_in_the_page_sample_by_sample(run, page):
    text = page.split('id="plot-1">')[1].split("</script>")[0]
    panels = json.loads(text)["panels"]
    test = run.of_role("test")[0]
    # Single precision of differences from a typical value.
    np.testing.assert_allclose(decoded(panels[0]["series"][0]), test.record.y[:, 0], atol=1e-6)
    np.testing.assert_allclose(decoded(panels[0]["series"][1])[5:], test.simulation.y[5:, 0], atol=1e-6)
    np.testing.assert_allclose(
        decoded(panels[1]["series"][0])[5:], (test.record.y - test.simulation.y)[5:, 0], atol=1e-6
    )
    assert [panel["kind"] for panel in panels] == ["output", "residual", "input"]


def test_large_offsets_do_not_cost_digits():
    record = Record.from_arrays(np.arange(100.0), 1e6 + 1e-3 * np.sin(np.arange(100.0)), ts=1.0)
    experiment = Experiment("train", record, Simulation(record.t, record.y, record.y, 0, "ok", ("y",)))
    drawn = decoded(plot_data(experiment, VALUES)["panels"][0]["series"][0])
    np.testing.assert_allclose(drawn, record.y[:, 0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("samples", [10, 11, 1000])
@pytest.mark.parametrize("width", [2, 3, 7])
def test_thinning_keeps_the_extremes_of_every_bucket(samples, width):
    values = np.random.default_rng(samples).normal(size=samples)
    values[4:6] = np.nan
    kept = thin(values, width).reshape(-1, 2)
    assert len(kept) == -(-samples // width)
    for pair, first in zip(kept, range(0, samples, width), strict=True):
        bucket = values[first : first + width]
        if np.isnan(bucket).all():
            assert np.isnan(pair).all()
        else:
            assert (pair.min(), pair.max()) == (np.nanmin(bucket), np.nanmax(bucket))


@pytest.mark.parametrize("uniform", [True, False])
def test_a_long_record_fits_and_its_peaks_are_there(uniform):
    samples = 1_000_000
    record = sines(samples)
    y = record.y.copy()
    y[654_321] = 50.0
    t = record.t if uniform else record.t + 0.5 * np.sin(np.arange(samples))
    record = dataclasses.replace(record, y=y, t=t)
    experiment = Experiment(
        "train", record, Simulation(record.t, record.y * 0.9, np.zeros((samples, 1)), 0, "ok", ("level",))
    )
    data = plot_data(experiment, VALUES)
    assert len(json.dumps(data)) < 4e6
    drawn = decoded(data["panels"][0]["series"][0])
    assert drawn.max() == pytest.approx(50.0)
    clock = data["clock"]
    assert clock["count"] == len(drawn)
    at = int(np.argmax(drawn))
    times = (
        np.frombuffer(base64.b64decode(clock["stamps"]))
        if not uniform
        else clock["start"] + clock["step"] * np.arange(len(drawn))
    )
    assert abs(times[at] - t[654_321]) <= data["thinned"] * 2.0  # within its bucket
    assert np.all(np.diff(times) > 0)


def test_buckets_are_as_narrow_as_allowed():
    assert bucket_width(100, 100) == 1
    for samples, allowed in ((101, 100), (1000, 10), (12345, 678)):
        width = bucket_width(samples, allowed)
        assert 2 * -(-samples // width) <= allowed + 1


def test_numbers_as_people_write_them():
    assert [number(v) for v in (0.5, None, float("nan"), float("inf"), -float("inf"))] == [
        "0.5", "\N{EN DASH}", "\N{EN DASH}", "\N{INFINITY}", "-\N{INFINITY}",
    ]  # fmt: skip
    assert [share(v) for v in (0.0, 0.012, 0.27, 3.0)] == ["0 %", "1.2 %", "27 %", "300 %"]


def test_a_study_has_its_table_boxes_best_runs_and_failures(tmp_path):
    path = write_report(write_study(tmp_path))
    assert path == tmp_path / "report.html"
    text = text_of(path.read_text())
    assert "13 of 15 runs finished" in text
    assert "Ts/tau = 0.1 is best: its median test RMSE is 0.3" in text
    assert "2 diverged training diverged &lt;b&gt; 0, 1" in text
    assert "Box plot of the test RMSE by Ts/tau" in path.read_text()
    assert "The best of many seeds is a lucky one" in text


def test_a_study_of_named_variants_is_grouped_by_them(tmp_path):
    rows = ["method,final_ts_over_tau,tau_seconds,seed,status,test_rmse,run"]
    rows += [f'{m},{r},{4 / r},{s},completed,{v},"{m},seed={s}"' for m, r, s, v in (
        ("bla", 0.054, 0, 0.26), ("bla", 0.055, 1, 0.24), ("free", 0.07, 0, 0.4), ("free", 0.05, 1, 0.5))]  # fmt: skip
    (tmp_path / "results.csv").write_text("\n".join(rows))
    study = read_results(tmp_path)
    assert list(study.groups()) == [("bla",), ("free",)]
    assert "bla is best: its median test RMSE is 0.25" in text_of(study_page(study))


def test_a_study_of_two_axes_names_both(tmp_path):
    rows = ["nx,activation,seed,status,test_rmse,run"]
    rows += [f'{nx},{a},0,completed,{nx},"nx={nx},activation={a}"' for nx in (1, 2) for a in ("tanh", "relu")]
    (tmp_path / "results.csv").write_text("\n".join(rows))
    assert "nx = 1, activation = tanh is best" in text_of(study_page(read_results(tmp_path)))


def test_a_study_with_several_test_records_is_told_by_the_first(tmp_path):
    rows = (
        "seed,status,test_rmse:arrow,test_rmse:multisine,run\n0,completed,0.5,0.2,seed=0\n1,completed,0.7,0.3,seed=1\n"
    )
    (tmp_path / "results.csv").write_text(rows)
    assert "The median test RMSE of arrow is 0.6" in text_of(study_page(read_results(tmp_path)))


def test_a_study_without_axes_or_scores_still_has_a_page(tmp_path):
    (tmp_path / "results.csv").write_text("seed,status,test_rmse,validation_rmse\n0,diverged,,\n1,failed,inf,\n")
    text = text_of(study_page(read_results(tmp_path)))
    assert "0 of 2 runs finished" in text
    assert "No run has a finite score" in text
    (tmp_path / "results.csv").write_text("seed,status,test_rmse,validation_rmse\n0,completed,,0.5\n1,completed,,0.7\n")
    assert "The median validation RMSE is 0.6, the best run has 0.5" in text_of(study_page(read_results(tmp_path)))


def test_what_is_neither_run_nor_study_is_refused(tmp_path):
    with pytest.raises(
        StorageError, match=r"must be the folder of a run \(result.json\) or of a study \(results.csv\)"
    ):
        write_report(tmp_path)
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="it has no column `status`"):
        write_report(tmp_path)
    (tmp_path / "results.csv").write_text("seed,status,test_rmse\n")
    with pytest.raises(ConfigError, match="a report must have finished runs"):
        write_report(tmp_path)
    (tmp_path / "results.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="results.csv cannot be read"):
        write_report(tmp_path)


def test_without_jinja2_the_message_says_what_to_install(tmp_path, monkeypatch):
    original = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "jinja2":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r'pip install "tausid\[report\]"'):
        write_report(write_study(tmp_path))
