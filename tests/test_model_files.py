"""Model files from strangers: whatever they hold, they are refused by an error of ours, or simulate and are described.

Files are forged from good ones, with checksums that are right, so that only the schema stands between them and the
program; `make test-slow` tries many more.
"""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

import tausid
from tausid import Record, StorageError, Structure, Tau
from tausid.cli.info import describe_all, describe_in_short, describe_json
from tausid.cli.printing import print_json, print_pairs
from tausid.data.scaling import Scaling
from tausid.errors import ConfigError, DataError, DivergenceError
from tausid.model.build import Weights, build_state_space
from tausid.model.ensembles import AnyModel, EnsembleModel
from tausid.model.model import Model
from tausid.model.physics import CascadedTanks, KnownPart
from tausid.model.structure import Integration
from tausid.storage import FORMAT_VERSION, _checksum

RECORD = Record.from_arrays(np.sin(np.arange(60.0)), np.cos(np.arange(60.0)), ts=0.5)
SCALING = Scaling.from_records(RECORD)
PROVENANCE = {
    "status": "completed", "recipe": {"name": "default"}, "seed": 3, "steps": 4, "best_step": 2,
    "versions": {"numpy": "2.0"}, "train": ["a"], "validation": [], "preparation": {"a": ["resampled"]}, "data": "ab",
    "folds": {"steps": [0, 1], "scores": [[1.0, float("inf")]], "pooled": [1.0, 0.5], "chosen": 1},
    "trust": {"held_out": 0.1, "linear": None, "members": 2, "distance": 0.01},
}  # fmt: skip


def make(structure: Structure, physics: KnownPart | None = None, **more: Any) -> Model:
    space = build_state_space(
        structure, Tau(2.0), Weights(0.1, 0.1), nu=1, ny=1, n_records=1, rng=np.random.default_rng(0), physics=physics
    )
    names = (("u",), ("y",), ("V",), ("mm",))
    return Model(space, SCALING, structure, Integration(), 0.5, *names, PROVENANCE, **more)


FREE = make(Structure(nx=2, hidden=(3,), activation="tanh"), delays=(0.5,))
MODELS: dict[str, AnyModel] = {
    "free": FREE,
    "encoder": make(Structure(nx=2, hidden=(3, 2), initial_state="encoder", na=2, nb=3, clock="irregular", dae=True),
                    past_span=(0.4, 4.0)),
    "polynomial": make(Structure(nx=1, network="both", hidden=(2,), degree=2, bias=True, feedthrough=False)),
    "ensemble": EnsembleModel((FREE, FREE), (0.1, float("nan")),
                              {**PROVENANCE, "members": [{"seed": 1, "error": None, "status": "x", "kept": True}]}),
    "physics": make(Structure(nx=2, hidden=(3,), correction="network"),
                    KnownPart.start(CascadedTanks(), SCALING, trainable=True)),
}  # fmt: skip


def parts(model: AnyModel) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What the file of a model holds."""
    if isinstance(model, Model):
        return dict(model.arrays()), json.loads(json.dumps(model.content()))
    arrays = {f"{i}.{name}": a for i, member in enumerate(model.members) for name, a in member.arrays().items()}
    content = {"members": [m.content() for m in model.members], "scores": [0.1, None], "provenance": model.provenance}
    return arrays, json.loads(json.dumps(content))


def forge(path: Path, arrays: dict[str, np.ndarray], text: str, **header: Any) -> Path:
    """A file with a right checksum, whatever it says."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    about = {"kind": "model", "version": FORMAT_VERSION, "checksum": _checksum(arrays, text), "content": text, **header}
    path.write_bytes(save(arrays, metadata={"tausid": json.dumps(about)}))
    return path


def use(path: Path) -> str:
    """Load, simulate and describe; what is raised must be an error of ours."""
    try:
        model = tausid.load_model(path)
    except (StorageError, ConfigError):  # the latter for equations of one's own, which must be given
        return "refused"
    print_pairs(describe_in_short(model, path))
    print_pairs(describe_all(model, path))
    print_json(describe_json(model, path))
    repr(model), model._repr_html_()
    if model.physics is None:
        try:
            with np.errstate(all="ignore"):
                model.simulate(RECORD)
        except (ConfigError, DataError, DivergenceError):
            return "refused to simulate"
    return "used"


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5),
    st.sampled_from([10**9, 2**31, -1, 0, 1e-300, 1e300, 10**400, "auto", "rk5", "\ud800", "", [[]], [[[0, 1]]]]),
    st.lists(st.one_of(st.none(), st.floats(), st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in plain JSON values."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


def spoil_content(draw: st.DrawFn, content: Any) -> None:
    *above, last = draw(st.sampled_from(list(places(content))))
    for key in above:
        content = content[key]
    action = draw(st.sampled_from(["replace", "replace", "replace", "delete", "add"]))
    if action == "delete":
        del content[last]
    elif action == "add" and isinstance(content, dict):
        content["more"] = draw(JUNK)
    else:
        content[last] = draw(JUNK)


def spoil_array(draw: st.DrawFn, arrays: dict[str, np.ndarray]) -> None:
    name = draw(st.sampled_from([name for name in sorted(arrays) if arrays[name].dtype == float]))
    array = arrays[name]
    arrays[draw(st.sampled_from([name, name, name, "more", f"0.{name}"]))] = draw(
        st.sampled_from([
            array[..., None], array.ravel()[:0], np.zeros_like(array, np.float16),
            np.zeros_like(array, int), np.zeros_like(array, bool),
            np.full_like(array, np.nan), np.full_like(array, np.inf), np.full_like(array, -1.0), np.zeros_like(array),
            np.full_like(array, 1e300),
            np.zeros((0, *array.shape)), array.T,
        ])
    )  # fmt: skip


@st.composite
def forged(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays, content = parts(MODELS[draw(st.sampled_from(sorted(MODELS)))])
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            spoil_array(draw, arrays)
        elif content:
            spoil_content(draw, content)
    return arrays, content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Wrong arrays come through, as users' do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield tmp_path_factory.mktemp("models")


def try_forged(count: int, folder: Path, **more: Any) -> None:
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), **more)
    @given(forged())
    def attempt(file: tuple[dict[str, np.ndarray], dict[str, Any]]) -> None:
        use(forge(folder / "forged.safetensors", file[0], json.dumps(file[1])))

    attempt()


def test_forged_files_are_refused_or_used(folder, capsys):
    try_forged(300, folder, derandomize=True)


@pytest.mark.slow
def test_many_forged_files_are_refused_or_used(folder, capsys):
    try_forged(100_000, folder)


@pytest.mark.parametrize("name", MODELS)
def test_good_files_are_used(name, folder, capsys):
    arrays, content = parts(MODELS[name])
    assert use(forge(folder / f"{name}.safetensors", arrays, json.dumps(content))) == "used"
    assert (folder / f"{name}.safetensors").read_bytes() == MODELS[name].save(folder / "again").read_bytes()


def test_flipped_bytes_are_noticed(folder):
    """In what the header says of a file; `test_storage.py` flips those of arrays."""
    whole = FREE.save(folder / "flipped.safetensors").read_bytes()
    good = tausid.load_model(folder / "flipped.safetensors")
    rng = np.random.default_rng(0)
    for place in rng.permutation(len(whole))[:300]:
        spoiled = bytearray(whole)
        spoiled[place] ^= 1 << int(rng.integers(8))
        (folder / "flipped.safetensors").write_bytes(spoiled)
        try:
            again = tausid.load_model(folder / "flipped.safetensors")
        except StorageError:
            continue
        assert again.content() == good.content()


HUGE = {"nx": 10**9, "hidden": [2**31 - 1], "degree": 10**9, "na": 10**9, "n_records": 2**31 - 1}


@pytest.mark.parametrize("name", HUGE)
def test_no_memory_is_asked_for_that_the_file_does_not_hold(name, folder):
    arrays, content = parts(MODELS["encoder" if name == "na" else "polynomial" if name == "degree" else "free"])
    (content if name in content else content["structure"])[name] = HUGE[name]
    path = forge(folder / "huge.safetensors", arrays, json.dumps(content))
    tracemalloc.start()
    try:
        with pytest.raises(StorageError, match="must be as tausid writes it"):
            tausid.load_model(path)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def spoiled_text(old: str, new: str) -> str:
    text = json.dumps(parts(FREE)[1])
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is no JSON"),
        ("[" * 100_000, "at most 32 levels deep"),
        ('{"a":' * 40 + "1" + "}" * 40, "at most 32 levels deep"),
        ("null", "Expected `object`"),
        (spoiled_text('"ts": 0.5', '"ts": ' + "1" * 10_000), "it is no JSON"),
        (spoiled_text('"ts": 0.5', '"ts": 0.5, "ts": 0.5'), "a name comes twice"),
        (spoiled_text('"ts": 0.5', '"ts": NaN'), r"Expected `float` > 0.0 - at `\$.ts`"),
        (spoiled_text('"ts": 0.5', '"ts": 1e999'), r"at `\$.ts`"),
        (spoiled_text('"ts": 0.5', '"ts": "0.5"'), r"Expected `float`, got `str` - at `\$.ts`"),
        (spoiled_text('["V"]', '["V", "A"]'), "one entry per input channel; got 2 for 1"),
        (spoiled_text('["u"]', "[null]"), r"Expected `str`, got `null` - at `\$.input_names\[0\]`"),
        (spoiled_text('["u"]', '["y"]'), "channel names must differ"),
        (spoiled_text('"ts": 0.5', '"ts": 0.5, "\\ud800": 1'), "surrogates not allowed"),
        (spoiled_text('"delays": [0.5]', '"delays": [-1]'), r"at `\$.delays\[0\]`"),
        (spoiled_text('"substeps": 1', '"substeps": 1000000000'), "at most 100000"),
        (spoiled_text('"stepper": "rk4"', '"stepper": "rk5"'), "unknown stepper"),
        (spoiled_text('"nx": 2', '"nx": 2, "color": "red"'), "unknown field `color`"),
    ],
)
def test_what_is_wrong_is_named(text, reason, folder):
    path = forge(folder / "named.safetensors", FREE.arrays(), text)
    with pytest.raises(StorageError, match=f"named.safetensors must be as tausid writes it; it is not .*{reason}"):
        tausid.load_model(path)


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("scaling.u_std", [-1.0], "must be positive"),
        ("scaling.y_mean", [0.0, 1.0], r"must hold numbers of shape \(1,\)"),
        ("initial.x0", [[np.nan, 0.0]], "`initial.x0` must be finite"),
        ("initial.x0", [[0, 0]], "must hold numbers of type float64; it has int64"),
        ("f.linear", np.zeros((2, 4)), r"`f.linear` must have shape \(2, 3\); it has \(2, 4\)"),
        ("tau.start", 0.0, "`tau` must be a positive number"),
        ("more", [1.0], "array 'more' is none of such a model"),
    ],
)
def test_arrays_are_checked_against_the_structure(name, array, reason, folder):
    arrays, content = parts(FREE)
    path = forge(folder / "arrays.safetensors", {**arrays, name: np.array(array)}, json.dumps(content))
    with pytest.raises(StorageError, match=reason):
        tausid.load_model(path)


def test_parameters_beyond_all_measure_are_refused(folder):
    """Their free numbers would be infinite; found by a fuzzer."""
    arrays, content = copy.deepcopy(parts(MODELS["physics"]))
    content["physics"]["fields"]["k1"] = {"start": 1e-300, "lower": 0.0, "upper": 1e300}
    path = forge(folder / "measure.safetensors", arrays, json.dumps(content))
    with pytest.raises(StorageError, match=r"`Parameter` must have finite numbers of at most 1e\+100"):
        tausid.load_model(path)


@pytest.mark.parametrize("header", [{"version": "1"}, {"version": None}, {"checksum": 3}, {"content": None}])
def test_a_header_of_other_types_is_refused(header, folder):
    with pytest.raises(StorageError, match="must be as tausid writes it"):
        tausid.load_model(forge(folder / "header.safetensors", FREE.arrays(), "{}", **header))


@pytest.mark.parametrize("broken", [7, [], {"seed": "x"}, {"train": 3}, {"folds": {"chosen": 1}}, {"trust": [1]}, None])
def test_broken_provenance_is_dropped_and_said(broken, folder, capsys):
    arrays, content = copy.deepcopy(parts(FREE))
    path = forge(folder / "origin.safetensors", arrays, json.dumps({**content, "provenance": broken}))
    model = tausid.load_model(path)
    np.testing.assert_array_equal(model.simulate(RECORD).y, FREE.simulate(RECORD).y)
    assert "it was not as `tausid fit` writes it" in describe_in_short(model, path)["provenance"]
    assert use(path) == "used"
