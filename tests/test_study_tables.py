"""Studies: what a spec may say, how runs are named, and what tables make of their outcomes. Nothing is trained here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import printed
from studies import QUICK, TINY, write_study

from tausid import ConfigError, StorageError
from tausid.results.study_results import write_results
from tausid.study import StudyResults, StudySpec, coordinator, parse_spec, read_results, run_study


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def rows(**columns: list) -> tuple[dict, ...]:
    return tuple(
        {"status": "completed", **dict(zip(columns, v, strict=True))} for v in zip(*columns.values(), strict=True)
    )


DATA = {"train": "x.csv", "inputs": ["u"], "outputs": ["y"]}
LONG_NAME = "a" * 100


def test_a_table_with_more_cells_than_columns_is_refused(tmp_path):
    (tmp_path / "results.csv").write_text("seed,status\n0,completed,3\n")
    with pytest.raises(ConfigError, match=r"must have a cell per column in each row; one has more. Let `tausid study"):
        read_results(tmp_path)
    (tmp_path / "results.csv").write_text(f"seed,status\n{'[' * 100_000},completed\n")
    assert read_results(tmp_path).rows[0]["seed"] == "[" * 100_000


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
    spec = parse_spec({**TINY, "data": {"train": "@emps", "prepare": ["decimate 10"]}}, folder=Path())
    assert spec.sources["emps"].prepare == ("decimate 10",)


def test_a_study_of_several_data_has_runs_for_each():
    data = ["@linear", {"train": "@emps", "prepare": ["decimate 10"]}, {**DATA, "train": "some/x.csv"}]
    runs = parse_spec({**TINY, "data": data, "settings": {"window": 50}}, folder=Path()).runs()
    assert [run.name for run in runs] == ["data=linear,seed=0", "data=emps,seed=0", "data=x,seed=0"]
    assert runs[1].labels == {"data": "emps", "seed": 0}
    assert runs[1].source.prepare == ("decimate 10",) and runs[0].source.train == "@linear"
    assert all(run.choices["window"] == 50 for run in runs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": []}, "`data` must name at least one; got an empty list"),
        ({"data": ["@emps", {"train": "@emps"}]}, "data of a study must differ in their names; 'emps' comes twice"),
        ({"data": ["@emps", 3]}, "`data` must be @NAME, a table with the key train, or a list of these; got 3"),
        ({"settings": {"window": 0}}, "`window` must be"),
    ],
)
def test_data_and_windows_that_a_study_cannot_have(change, message):
    with pytest.raises(ConfigError, match=message):
        parse_spec({**TINY, **change}, folder=Path())


def test_a_study_with_reference_values_is_compared_with_them(tmp_path):
    (tmp_path / "references.csv").write_text(
        "data,score,reference,value\na,test_rmse,mean,2.0\na,test_rmse,ARX,inf\nb,test_rmse:y2,mean,3.0\n"
    )
    empty = printed("study", "table", tmp_path)
    assert "median" not in empty and "inf" in empty  # columns without a value are left out
    done = rows(
        data=["a", "a", "a", "b"],
        seed=[0, 1, 2, 0],
        test_rmse=[0.1, 0.3, None, None],
        test_fit_percent=[90.0, 70.0, None, None],
        cpu_seconds=[1.0, 3.0, 2.0, 4.0],
        structure=["nx 2", "nx 2", "nx 3", "nx 4"],
        consensus=[0.1, 0.2, 0.6, None],
        **{"test_rmse:y2": [None, None, None, 0.7]},
    )
    write_results(tmp_path, StudyResults("suite", done))
    first, second = json.loads(printed("study", "table", tmp_path, "--json"))["compared"]
    # The run without a score diverged: it is the worst.
    assert (first["median"], first["worst"], first["runs"], first["diverged"]) == (0.3, None, 3, 1)
    assert (first["fit %"], first["cpu s"], first["structure"], first["consensus"]) == (80.0, 2.0, "nx 2", 0.2)
    assert (first["mean"], first["ARX"]) == (2.0, None)
    assert (second["data"], second["score"], second["median"], second["ARX"]) == ("b", "test_rmse:y2", 0.7, None)
    assert "nx 2" in printed("study", "table", tmp_path) and "inf" in printed("study", "table", tmp_path)
    assert "best" in printed("study", "table", tmp_path, "--by", "data")  # the usual table, where one asks for it


def test_references_with_other_columns_are_refused(tmp_path):
    (tmp_path / "references.csv").write_text("plant,value\na,1\n")
    with pytest.raises(ConfigError, match="must have the columns data, score, reference, value"):
        printed("study", "table", tmp_path)


def test_a_study_by_hand_without_values_is_refused():
    sources = parse_spec(TINY, folder=Path()).sources
    with pytest.raises(ConfigError, match="a study must have at least one run"):
        StudySpec(sources, {}, {"seed": ()}, {}).runs()


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
    assert "[8, 8]" in printed("study", "table", tmp_path)
    printed("study", "plot", tmp_path, "--out", tmp_path / "boxes.svg")
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
    assert "validation_rmse" in printed("study", "table", tmp_path)


def test_a_table_of_failures_says_why(tmp_path):
    failed = ({"status": "failed", "run": "seed=0", "seed": 0, "message": "too short"},)
    write_results(tmp_path, StudyResults("s", failed))
    assert StudyResults("s", failed).summary()[0]["scored"] == 0
    assert "No run has a test_rmse. 1 of 1 failed, the first one: too short" in printed("study", "table", tmp_path)
    said = printed("study", "table", tmp_path, "--runs")
    assert "seed=0" in said
    assert "too short" in said


def test_a_table_is_printed_from_the_results_alone(tmp_path):
    found = rows(run=["nx=2,seed=0", "nx=2,seed=1", "nx=3,seed=0"], nx=[2, 2, 3], test_rmse=[0.25, 0.75, 0.125])
    write_results(tmp_path, StudyResults("s", found))
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]  # no journal, no runs
    groups = json.loads(printed("study", "table", tmp_path, "--json"))["groups"]
    assert [(group["nx"], group["runs"], group["median"]) for group in groups] == [(2, 2, 0.5), (3, 1, 0.125)]
    said = printed("study", "table", tmp_path)
    assert "3 finished runs, test_rmse" in said and "0.125" in said
    assert "nx=2,seed=1" in printed("study", "table", tmp_path, "--runs")
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_a_table_before_the_first_run_has_ended_says_so(tmp_path):
    write_results(tmp_path, StudyResults("s", ()))
    assert "no run has finished yet" in printed("study", "table", tmp_path)
    assert "no run has finished yet" in printed("study", "table", tmp_path, "--runs")
    with pytest.raises(ConfigError, match="a box plot must have finished runs"):
        printed("study", "plot", tmp_path, "--by", "tau", "--out", tmp_path / "boxes.svg")


@pytest.mark.parametrize("name", ["1", "null", "true", "[1]", '"quoted"', "NaN", "plain"])
def test_a_variant_keeps_its_name(tmp_path, name):
    write_results(tmp_path, StudyResults("s", rows(variant=[name], test_rmse=[0.1])))
    assert read_results(tmp_path).rows[0]["variant"] == name


def test_a_plot_refuses_what_it_cannot_draw(tmp_path):
    write_results(tmp_path, StudyResults("s", rows(tau=[1.0, 2.0], test_rmse=[0.1, 0.2])))
    picture = ("--out", tmp_path / "boxes.svg")
    with pytest.raises(ConfigError, match="`--mark` must be NAME=NUMBER; got 'BLA=abc'"):
        printed("study", "plot", tmp_path, "--mark", "BLA=abc", *picture)
    with pytest.raises(ConfigError, match="unknown score 'nonsense'"):
        printed("study", "plot", tmp_path, "--score", "nonsense", *picture)


def test_a_study_that_cannot_begin_is_not_to_be_resumed(tmp_path, capfd):
    spec = write_study(tmp_path / "s", QUICK, "seed = [0]")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        printed("study", "run", spec, "--out", tmp_path / "file")
    said = capfd.readouterr().err
    assert ended.value.code == 2
    assert "must be writable" in said
    assert "--resume" not in said


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
