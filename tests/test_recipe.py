"""Recipes: changes by key, parts that go together, files, and what the data make of `auto`."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from problems import wiener_record

import tausid
from tausid import ConfigError, Recipe, Record, recipes
from tausid.training.fitting import change_recipe
from tausid.training.resolve import FOLDED_OUTPUTS, resolve, resolve_holdout

NAMED = {**recipes.NAMES, "greybox": recipes.greybox}


# Changes


def test_settings_are_changed_by_their_keys():
    recipe = recipes.windows().change(
        {"structure.hidden": [8, 4], "trainer.steps": 60, "integration.substeps": 2, "start.weight_range": 0.3}
    )
    assert recipe.structure.hidden == (8, 4)
    assert (recipe.trainer.steps, recipe.integration.substeps, recipe.start.weight_range) == (60, 2, 0.3)
    changed_back = {"structure.hidden": (64, 64), "trainer.steps": 6000, "integration.substeps": 1}
    assert recipe.change({**changed_back, "start.weight_range": 0.01}) == recipes.windows()  # and nothing else


def test_numbers_of_numpy_are_numbers():
    recipe = recipes.windows().change({"structure.nx": np.int64(2), "trainer.learning_rate": np.float32(0.5)})
    assert type(recipe.structure.nx) is int
    assert type(recipe.trainer.learning_rate) is float


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"holdout": "none"}, None),
        ({"holdout": "auto"}, "auto"),
        ({"holdout": "folds"}, tausid.Folds()),
        ({"holdout": "last-share"}, tausid.LastShare()),
        ({"holdout": "paper"}, tausid.PaperTestHalf()),
        ({"holdout": tausid.Folds(7)}, tausid.Folds(7)),
        ({"search": "fixed"}, tausid.Fixed()),
        ({"start": "random"}, tausid.Random()),
        ({"trainer": "levenberg-marquardt"}, tausid.LevenbergMarquardt()),
    ],
)
def test_whole_parts_are_objects_or_their_kind_in_words(given, part):
    assert getattr(recipes.default().change(given), next(iter(given))) == part


def test_a_kind_that_a_recipe_has_already_keeps_its_settings():
    assert recipes.paper().change({"trainer": "adam"}) == recipes.paper()
    assert Recipe(holdout=tausid.Folds(7)).change({"holdout": "folds"}).holdout.count == 7


@pytest.mark.parametrize("held", [None, "auto", tausid.LastShare(), tausid.Given(), tausid.Folds(9)])
def test_a_setting_of_a_holdout_chooses_that_holdout(held):
    recipe = Recipe(holdout=held)
    assert recipe.change({"holdout.count": 3}).holdout == tausid.Folds(3)
    assert recipe.change({"holdout.share": 0.1}).holdout == tausid.LastShare(0.1)


def test_parts_and_settings_are_changed_together():
    """A recipe in between, with Adam and free initial states, would be refused."""
    together = {"structure.initial_state": "encoder", "trainer.steps": 5, "trainer": "adam", "holdout.share": 0.3}
    for keys in (together, dict(reversed(together.items()))):
        recipe = recipes.default().change(keys)
        assert recipe.trainer == tausid.Adam(steps=5)
        assert recipe.holdout == tausid.LastShare(0.3)


def test_the_barrier_is_changed_by_its_own_keys():
    barrier = {"trainer.barrier.weight": 10.0, "trainer.barrier.form": "sigmoid"}
    assert recipes.windows().change(barrier).trainer.barrier == tausid.Barrier(10.0, "sigmoid")
    assert recipes.paper().change(barrier).trainer.barrier == tausid.Barrier(10.0, "sigmoid")
    assert recipes.paper().change({"trainer.barrier": "none"}).trainer.barrier is None
    assert recipes.paper().change({"trainer.barrier": None}).trainer.barrier is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trainer.horizont", 3, "unknown setting 'trainer.horizont'.*Did you mean 'trainer.horizon'"),
        ("horizon", 3, "unknown setting 'horizon'.*Did you mean 'trainer.horizon'"),
        ("traner.horizon", 3, "unknown setting 'traner'.*Did you mean 'trainer'"),
        ("holdout.counts", 3, "Did you mean 'holdout.count'"),
        ("trainer.barrier.wieght", 3, "Did you mean 'trainer.barrier.weight'"),
        ("structure.nx.y", 3, "unknown setting 'structure.nx.y'"),
        ("holdout.count.y", 3, "unknown setting 'holdout.count.y'"),
        ("", 3, "unknown setting ''"),
        ("name", "mine", "unknown setting 'name'"),
        ("holdout", "fold", "unknown holdout 'fold'.*Did you mean 'folds'"),
        ("trainer", "adams", "unknown trainer 'adams'.*Did you mean 'adam'"),
        ("trainer.iterations", 3, "`trainer.iterations` is a setting of LevenbergMarquardt.*recipe default has.*Adam"),
        ("trainer.decay", 3.0, "`trainer.decay` is a setting of LevenbergMarquardt"),
        ("trainer.barrier", "smooth", "`barrier` must be a Barrier or none; got 'smooth'"),
        ("trainer.barrier.form", "relu", "unknown form 'relu'"),
        ("trainer", 3, "`trainer` of a recipe must be one of LevenbergMarquardt, Adam; got 3"),
        ("holdout", tausid.Search(), "`holdout` of a recipe must be one of Folds, LastShare"),
        ("holdout.count", 1, "`count` must be a whole number of at least 2; got 1"),
        ("holdout.share", 0.9, "`share` must be at most 0.5; got 0.9"),
        ("holdout.share", 0.0, "`share` must be a positive number; got 0.0"),
    ],
)
def test_keys_and_values_that_are_wrong_say_what_is_right(key, value, message):
    with pytest.raises(ConfigError, match=message):
        recipes.windows().change({key: value})


@pytest.mark.parametrize("key", ["trainer.steps", "trainer.barrier.weight", "start.A"])
def test_a_key_of_another_trainer_or_start_says_which_recipe_has_it(key):
    with pytest.raises(
        ConfigError, match=f"`{key}` is a setting of .*, which the recipes windows and paper have; this"
    ):
        recipes.default().change({key: 3})


# Parts that go together


ENCODED = {"structure": tausid.Structure(initial_state="encoder")}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"trainer": tausid.Adam()}, "`initial_state` must be 'encoder' where Adam trains"),
        ({"structure": tausid.Structure(dae=True)}, "`dae` must be false with Levenberg-Marquardt"),
        (
            {"start": tausid.FromLinear(stretches=True), "trainer": tausid.Adam(), **ENCODED},
            "`stretches` must be false where Adam trains on windows",
        ),
        (
            {"structure": tausid.Structure(initial_state="encoder", encoder="mlp"), "start": tausid.Random()},
            "`encoder` must be 'residual' where its linear part is fitted to states",
        ),
        (
            {"structure": tausid.Structure(initial_state="encoder", encoder="mlp"), "trainer": tausid.Adam()},
            "`encoder` must be 'residual' where its linear part is fitted to states",
        ),
    ],
)
def test_parts_that_do_not_go_together_are_refused(parts, message):
    with pytest.raises(ConfigError, match=message):
        Recipe(**parts)


@pytest.mark.parametrize("name", NAMED)
def test_named_recipes_compose(name):
    """The structure is an argument of each, and every part of it can be exchanged by one of another recipe."""
    recipe = NAMED[name](nx=3, hidden=(7,), feedthrough=False)
    assert (recipe.structure.nx, recipe.structure.hidden, recipe.structure.feedthrough) == (3, (7,), False)
    assert recipe.change({"structure": NAMED[name]().structure}) == NAMED[name]()
    for holdout in (None, "auto", tausid.Folds(), tausid.LastShare(), tausid.Given(), tausid.PaperTestHalf()):
        assert dataclasses.replace(recipe, holdout=holdout).holdout == holdout
    by_adam = isinstance(recipe.trainer, tausid.Adam)
    other = recipes.default() if by_adam else recipes.windows()
    asked = {"trainer": other.trainer, "start": other.start, "structure": other.structure, "search": other.search}
    exchanged = recipe.change({**asked, "holdout": other.holdout})
    assert dataclasses.replace(exchanged, name=other.name) == other


def test_a_recipe_is_found_by_its_name_and_gives_way_to_what_it_cannot_do():
    own = recipes.paper(nx=2)
    assert recipes.find(own) is own
    assert [recipes.find(name).name for name in recipes.NAMES] == list(recipes.NAMES)
    assert recipes.find("default", autonomous=True) == recipes.windows()
    assert recipes.find("default", known=True) == recipes.greybox()
    for wrong in ("papre", 3):
        with pytest.raises(ConfigError, match=f"unknown recipe {wrong!r}; known: default, paper, windows"):
            recipes.find(wrong)


def test_the_protocol_is_that_of_the_holdout():
    assert {make().protocol for make in NAMED.values()} == {"clean"}
    assert change_recipe("default", None, protocol="paper").protocol == "paper"
    assert recipes.default().change({"holdout": "paper"}).protocol == "paper"
    with pytest.raises(ConfigError, match="unknown protocol 'papier'"):
        change_recipe("default", None, protocol="papier")


def test_arguments_settings_and_states_of_a_fit_change_its_recipe():
    asked = change_recipe("windows", None, nx=3, settings={"trainer.steps": 5}, parts={"holdout": tausid.Folds(3)})
    assert asked == recipes.windows(nx=3).change({"trainer.steps": 5, "holdout.count": 3})


# Files


@pytest.mark.parametrize(
    "recipe",
    [
        *(make() for make in NAMED.values()),
        recipes.paper().change({"trainer.barrier.form": "sigmoid", "trainer.output_weights": [1.0, 2.0]}),
        recipes.windows().change({"integration.hold": ["first", "zero"], "structure.hidden": [3, 4, 5]}),
        recipes.default(output_limits=((None, 10.0), (0, 1))).change({"holdout": "none", "search": "fixed"}),
        recipes.default().change({"holdout": "given"}),
        recipes.default().change({"holdout": "paper"}),
        recipes.default().change({"holdout.count": 3}),
    ],
)
def test_recipes_survive_json(recipe):
    plain = recipe.as_dict()
    assert Recipe.from_dict(json.loads(json.dumps(plain))) == recipe
    assert json.loads(json.dumps(plain)) == plain  # plain values already


# What the data make of `auto`


def jittered(record: Record) -> Record:
    moved = 0.5 * record.ts * np.random.default_rng(0).random(len(record))
    return Record.from_arrays(record.u, record.y, t=record.t + moved, name="jittered")


def autonomous(samples: int) -> Record:
    t = 0.1 * np.arange(samples)
    return Record.from_arrays(np.zeros((samples, 0)), np.sin(t), t=t, name="autonomous")


@pytest.mark.parametrize(
    ("record", "clock"),
    [
        (wiener_record(200), "regular"),
        (jittered(wiener_record(200)), "irregular"),
        (wiener_record(60), "regular"),
        (wiener_record(1000), "regular"),
        (autonomous(200), "regular"),
        (jittered(autonomous(200)), "irregular"),
    ],
    ids=["usual", "jittered", "short", "long", "autonomous", "autonomous and jittered"],
)
@pytest.mark.parametrize("name", ["default", "windows"])
def test_nothing_of_a_structure_is_left_to_the_data(name, record, clock):
    asked = change_recipe(name, record, settings={"trainer.horizon": 20} if name == "windows" else None)
    found = resolve(asked, record, tau="bla", seed=0).problem.recipe
    assert "auto" not in dataclasses.asdict(found.structure).values()
    assert found.holdout != "auto"
    assert found.structure.clock == clock
    given = {field.name: getattr(asked.structure, field.name) for field in dataclasses.fields(asked.structure)}
    for key, value in given.items():  # what was not `auto` is as it was asked for
        assert value == "auto" or getattr(found.structure, key) == value


@pytest.mark.parametrize(
    ("lengths", "holdout"),
    [
        ([1000], tausid.Folds(4)),
        ([130], tausid.Folds(3)),
        ([79], None),
        ([60, 130], tausid.Folds(3)),
        ([FOLDED_OUTPUTS + 1], tausid.LastShare()),
        ([FOLDED_OUTPUTS // 2 + 1] * 2, tausid.LastShare()),
        ([FOLDED_OUTPUTS], tausid.Folds(4)),
    ],
)
def test_short_records_have_fewer_folds_and_long_ones_hold_out_their_end(lengths, holdout):
    records = [Record.from_arrays(np.arange(n), np.arange(n), ts=1.0) for n in lengths]
    assert resolve_holdout(recipes.default(), records, None).holdout == holdout
    assert resolve_holdout(recipes.default(), records, records).holdout == tausid.Given()
    asked = recipes.default().change({"holdout": "none"})
    assert resolve_holdout(asked, records, None) == asked


@pytest.mark.parametrize(
    ("holdout", "validation", "message"),
    [
        ("folds", True, "holdout 'folds' must have no validation records"),
        ("paper", True, "holdout 'paper' must have no validation records"),
        ("given", False, "holdout 'given' must have validation records; got none"),
    ],
)
def test_a_holdout_and_validation_records_must_not_contradict(holdout, validation, message):
    record = wiener_record(100)
    with pytest.raises(ConfigError, match=message):
        resolve_holdout(recipes.default().change({"holdout": holdout}), [record], [record] if validation else None)
