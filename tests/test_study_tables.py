"""Studies: what a spec may say, how runs are named, and what tables make of their outcomes. Nothing is trained here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies import QUICK, TINY, write_study
from typer.testing import CliRunner

from tausid import ConfigError, StorageError
from tausid.cli.commands import app
from tausid.results.study_results import write_results
from tausid.study import StudyResults, StudySpec, coordinator, parse_spec, read_results, run_study


def run(*arguments: object) -> str:
    """What a command prints; an error of it is raised here."""
    environment = {"COLUMNS": "200"}
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False, env=environment).stdout


def rows(**columns: list) -> tuple[dict, ...]:
    return tuple(
        {"status": "completed", **dict(zip(columns, v, strict=True))} for v in zip(*columns.values(), strict=True)
    )


DATA = {"train": "x.csv", "inputs": ["u"], "outputs": ["y"]}
LONG_NAME = "a" * 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": {"seed": {"range": [0, 0]}}}, r"axis `seed` must have at least one value; \{'range': \[0, 0\]\} has"),
        ({"axes": {"seed": {"and": []}}}, "axis `seed` must have at least one value"),
        ({"axes": {"seed": {"range": 20}}}, r"range = 20 must be a list. Write range = \[0, 20\]"),
        ({"axes": {"seed": {"and": 3}}}, r"and = 3 must be a list. Write and = \[4.0\]"),
        ({"axes": {"seed": {"linspace": 3}}}, r"linspace = 3 must be a list. Write linspace = \[0.1, 10.0, 5\]"),
        ({"settings": {"tau": True}}, "`tau` must be a positive number, or one per state; got True"),
        ({"settings": {"recipe": ["paper"]}}, "unknown recipe"),
        ({"variants": {LONG_NAME + "b": {}, LONG_NAME + "c": {"nx": 2}}}, "differ in the first 100 characters"),
        ({"variants": {"A = -I": {}, "A_-I": {"nx": 2}}}, "must differ in letters and digits.*both 'A_-I,seed=0'"),
        ({"data": {"train": "@emps", "ts": 1.0, "test": "y.csv"}}, "no keys but train and prepare; @emps.*ts, test"),
        (
            {"data": {**DATA, "inputs": "u"}},
            r"`inputs` of \[data\] must be a list of texts, such as \[\"u\"\]; got 'u'",
        ),
        ({"data": {**DATA, "prepare": "decimate 2"}}, r"`prepare` of \[data\] must be a list.*\[\"decimate 10\"\]"),
        ({"data": {**DATA, "ts": "4"}}, r"`ts` of \[data\] must be a number of seconds; got '4'"),
        ({"data": {**DATA, "train": 3}}, r"`train` of \[data\] must be text; got 3"),
        ({"data": {**DATA, "test": "@emps"}}, r"`test` of \[data\] must be a file; got '@emps'"),
    ],
)
def test_what_a_spec_says_wrongly_is_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        parse_spec({**TINY, **change}, folder=Path())


def test_a_dataset_by_name_may_be_prepared():
    assert parse_spec({**TINY, "data": {"train": "@emps", "prepare": ["decimate 10"]}}, folder=Path()).source.prepare


def test_a_study_by_hand_without_values_is_refused():
    source = parse_spec(TINY, folder=Path()).source
    with pytest.raises(ConfigError, match="a study must have a run"):
        StudySpec(source, {}, {"seed": ()}, {}).runs()


@pytest.mark.parametrize(
    ("variants", "name"), [({}, "run"), ({"..": {}}, "__"), ({".": {}}, "_"), ({"..a": {}}, "..a")]
)
def test_every_run_has_a_folder_of_its_own(variants, name):
    content = {"data": "@cascaded_tanks", "settings": {"seed": 0}, "variants": variants}
    assert [run.name for run in parse_spec(content, folder=Path()).runs()] == [name]


def test_lists_on_an_axis_are_grouped_tabled_and_drawn(tmp_path):
    found = rows(**{"structure.hidden": [[8], [8, 8]] * 2}, seed=[0, 0, 1, 1], test_rmse=[0.1, 0.2, 0.3, 0.4])
    write_results(tmp_path, StudyResults("s", found))
    results = read_results(str(tmp_path))
    assert [(group["structure.hidden"], group["best"]) for group in results.summary()] == [((8,), 0.1), ((8, 8), 0.2)]
    assert "[8, 8]" in run("study", "table", tmp_path)
    run("study", "plot", tmp_path, "--out", tmp_path / "boxes.svg")
    assert "[8, 8]" in (tmp_path / "boxes.svg").read_text()


def test_ts_over_tau_is_an_axis_and_what_training_made_of_it_is_an_outcome():
    asked = rows(ts_over_tau=[0.1, 1, 0.1, 1], final_ts_over_tau=[0.11, 0.9, 0.12, 1.1], seed=[0, 0, 1, 1])
    assert StudyResults("s", tuple({"variant": "x", **row} for row in asked)).axes == ("variant", "ts_over_tau")
    trained = rows(final_ts_over_tau=[0.11, 0.12], test_rmse=[0.1, 0.2])
    assert StudyResults("s", trained).axes == ()
    assert [group["runs"] for group in StudyResults("s", trained).summary()] == [2]
    several = rows(ts_over_tau=[[0.1, 1], [1, 1]])
    assert len(StudyResults("s", several).groups()) == 2


def test_runs_are_compared_by_the_test_error_or_what_comes_nearest(tmp_path):
    results = StudyResults("s", rows(test_rmse=[None, None], validation_rmse=[0.1, 0.3], seed=[0, 1]))
    assert results.score == "validation_rmse"
    assert results.summary()[0]["mean"] == pytest.approx(0.2)
    assert StudyResults("s", rows(**{"test_rmse": [None], "test_rmse:y2": [0.1]})).score == "test_rmse:y2"
    write_results(tmp_path, results)
    assert "validation_rmse" in run("study", "table", tmp_path)


def test_a_table_of_failures_says_why(tmp_path):
    failed = ({"status": "failed", "run": "seed=0", "seed": 0, "message": "too short"},)
    write_results(tmp_path, StudyResults("s", failed))
    assert StudyResults("s", failed).summary()[0]["scored"] == 0
    assert "No run has a test_rmse. 1 of 1 failed, the first one: too short" in run("study", "table", tmp_path)
    printed = run("study", "table", tmp_path, "--runs")
    assert "seed=0" in printed
    assert "too short" in printed


def test_a_table_is_printed_from_the_results_alone(tmp_path):
    found = rows(run=["nx=2,seed=0", "nx=2,seed=1", "nx=3,seed=0"], nx=[2, 2, 3], test_rmse=[0.25, 0.75, 0.125])
    write_results(tmp_path, StudyResults("s", found))
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]  # no journal, no runs
    groups = json.loads(run("study", "table", tmp_path, "--json"))["groups"]
    assert [(group["nx"], group["runs"], group["median"]) for group in groups] == [(2, 2, 0.5), (3, 1, 0.125)]
    printed = run("study", "table", tmp_path)
    assert "3 finished runs, test_rmse" in printed and "0.125" in printed
    assert "nx=2,seed=1" in run("study", "table", tmp_path, "--runs")
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_a_table_before_the_first_run_has_ended_says_so(tmp_path):
    write_results(tmp_path, StudyResults("s", ()))
    assert "no run has finished yet" in run("study", "table", tmp_path)
    assert "no run has finished yet" in run("study", "table", tmp_path, "--runs")
    with pytest.raises(ConfigError, match="a box plot must have finished runs"):
        run("study", "plot", tmp_path, "--by", "tau", "--out", tmp_path / "boxes.svg")


@pytest.mark.parametrize("name", ["1", "null", "true", "[1]", '"quoted"', "NaN", "plain"])
def test_a_variant_keeps_its_name(tmp_path, name):
    write_results(tmp_path, StudyResults("s", rows(variant=[name], test_rmse=[0.1])))
    assert read_results(tmp_path).rows[0]["variant"] == name


def test_a_plot_refuses_what_it_cannot_draw(tmp_path):
    write_results(tmp_path, StudyResults("s", rows(tau=[1.0, 2.0], test_rmse=[0.1, 0.2])))
    picture = ("--out", tmp_path / "boxes.svg")
    with pytest.raises(ConfigError, match="`--mark` must be NAME=NUMBER; got 'BLA=abc'"):
        run("study", "plot", tmp_path, "--mark", "BLA=abc", *picture)
    with pytest.raises(ConfigError, match="unknown score 'nonsense'"):
        run("study", "plot", tmp_path, "--score", "nonsense", *picture)


def test_a_study_that_cannot_begin_is_not_to_be_resumed(tmp_path):
    spec = write_study(tmp_path / "s", QUICK, "seed = [0]")
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["study", "run", str(spec), "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "must be writable" in result.stderr
    assert "--resume" not in result.stderr


def test_a_study_in_a_folder_of_its_own_keeps_a_copy_of_its_spec(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "write_results", unwritable)
    spec = write_study(tmp_path / "s", QUICK, "seed = [0]")
    for text in (spec.read_text(), spec.read_text().replace("seed = [0]", "seed = [0, 1]")):
        spec.write_text(text)
        with pytest.raises(StorageError, match="full"):  # it has begun, and nothing is trained here
            run_study(spec, out=tmp_path / "out", resume=True)
        assert (tmp_path / "out" / "study.toml").read_text().endswith(text)
    with pytest.raises(StorageError, match="full"):
        run_study(spec, out=spec.parent)
    assert spec.read_text() == text  # the original is left alone


def unwritable(folder, results):
    raise StorageError("the disk is full")
