"""A recipe: what the model is, how it is integrated, where its weights start, what trains it, what is held out."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tausid.checks import check_choice, check_number, check_whole
from tausid.errors import ConfigError, unknown_name
from tausid.model.build import Weights
from tausid.model.structure import AUTO, Integration, Structure, as_plain, as_settings

FULL = "full"  # a horizon as long as the longest record: full simulation error, eq. 3


@dataclass(frozen=True)
class FromLinear:
    """The linear parts start from the best linear approximation.

    Args:
        nonlinear: output layers of the nonlinear parts: `zero`, so that training starts at the linear model, or
            `random`.
        weight_range: other weights are uniform in [-weight_range, weight_range].
        bias_range: biases are uniform in [-bias_range, bias_range].

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "from-linear"
    nonlinear: str = "zero"
    weight_range: float = 1.0
    bias_range: float = 1.0

    def __post_init__(self) -> None:
        check_choice("nonlinear", self.nonlinear, ("zero", "random"))
        check_number("weight_range", self.weight_range, positive=True)
        check_number("bias_range", self.bias_range)

    @property
    def weights(self) -> Weights:
        """How random weights are drawn."""
        return Weights(self.weight_range, self.bias_range, nonlinear=self.nonlinear)


@dataclass(frozen=True)
class Random:
    """All weights start at random.

    Args:
        A: what is added to the random A: `-I`, so that free runs of an untrained model settle; `-MM'` with M uniform in
            [-1, 1] / sqrt(nx), with fast and slow states; or `zero-mean` for nothing.
        nonlinear: output layers of the nonlinear parts: `random`, or `zero`.
        weight_range: weights are uniform in [-weight_range, weight_range].
        bias_range: biases are uniform in [-bias_range, bias_range].

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "random"
    A: str = "-I"
    nonlinear: str = "random"
    weight_range: float = 0.01
    bias_range: float = 0.0

    def __post_init__(self) -> None:
        check_choice("A", self.A, ("zero-mean", "-I", "-MM'"))
        check_choice("nonlinear", self.nonlinear, ("zero", "random"))
        check_number("weight_range", self.weight_range, positive=True)
        check_number("bias_range", self.bias_range)

    @property
    def weights(self) -> Weights:
        """How random weights are drawn."""
        return Weights(self.weight_range, self.bias_range, self.A, self.nonlinear)


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Levenberg-Marquardt on the simulation error of whole records (eq. 3), in double precision.

    Args:
        iterations: most iterations; folds may choose fewer.
        patience: iterations without a lower held-out error after which it ends.
        weight_decay: lambda_W of the weight decay.
        nonlinear_decay: weight decay on the nonlinear parts of the networks only, on top of `weight_decay`.
        output_weights: how much the squared error of each output counts, in training and validation; None is equally.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "levenberg-marquardt"
    iterations: int = 120
    # Held-out errors may rise for thirty iterations before they fall to a tenth, as where friction is found at last.
    patience: int = 40
    weight_decay: float = 1e-8
    nonlinear_decay: float = 1e-6
    output_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_whole("iterations", self.iterations, 1)
        check_whole("patience", self.patience, 1)
        for name in ("weight_decay", "nonlinear_decay"):
            check_number(name, getattr(self, name))
        _check_output_weights(self.output_weights)

    @property
    def most(self) -> int:
        """Most iterations."""
        return self.iterations


@dataclass(frozen=True)
class Barrier:
    """The paper's penalty lambda_N on an A that is not negative definite.

    Args:
        weight: lambda_N.
        form: `hinge`, zero where A is negative definite, or `sigmoid`, a smooth step.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "barrier"
    weight: float = 1e12
    form: str = "hinge"

    def __post_init__(self) -> None:
        check_number("weight", self.weight, positive=True)
        check_choice("form", self.form, ("hinge", "sigmoid"))


@dataclass(frozen=True)
class Adam:
    """Adam on the simulation error of windows (eq. 14), in single precision.

    Args:
        steps: most steps.
        horizon: samples per window, J; `full` for one window per record.
        batch: windows per step.
        learning_rate: the rate at the first step.
        schedule: how the rate falls: `cosine`, or `three-step` as in the paper.
        patience: steps without a lower validation error after which it ends.
        validate_every: steps between two validations.
        validation_error: what is validated: `free-run` simulations of the validation records, or `windows` of them.
        window_order: how windows are drawn: `random`, with replacement, or `epochs`, shuffled passes over all of them.
        max_recoveries: how often training may go back to its best weights after it diverged.
        weight_decay: lambda_W of the weight decay.
        dae_weight: lambda_D of the penalty that the DAE network computes, where the structure has one.
        barrier: the penalty on A; None for none.
        output_weights: how much the squared error of each output counts, in training and validation; None is equally.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "adam"
    steps: int = 6000
    horizon: int | str = 128
    batch: int = 64
    learning_rate: float = 3e-3
    schedule: str = "cosine"
    patience: int = 2000
    validate_every: int = 50
    validation_error: str = "free-run"
    window_order: str = "random"
    max_recoveries: int = 5
    weight_decay: float = 1e-6
    dae_weight: float = 0.0
    barrier: Barrier | None = None
    output_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "patience", "validate_every"):
            check_whole(name, getattr(self, name), 1)
        check_whole("max_recoveries", self.max_recoveries, 0)
        if self.horizon != FULL:
            check_whole("horizon", self.horizon, 2)
        check_number("learning_rate", self.learning_rate, positive=True)
        check_choice("schedule", self.schedule, ("cosine", "three-step"))
        check_choice("validation_error", self.validation_error, ("free-run", "windows"))
        check_choice("window_order", self.window_order, ("random", "epochs"))
        check_number("weight_decay", self.weight_decay)
        check_number("dae_weight", self.dae_weight)
        if self.barrier is not None and not isinstance(self.barrier, Barrier):
            raise ConfigError(f"`barrier` must be a Barrier or none; got {self.barrier!r}. Set barrier.weight.")
        _check_output_weights(self.output_weights)

    @property
    def most(self) -> int:
        """Most steps."""
        return self.steps


@dataclass(frozen=True)
class Folds:
    """Stretches of each training record are held out in turn, before a final fit on everything.

    Args:
        count: stretches per record.

    Raises:
        ConfigError: fewer than two.
    """

    kind: ClassVar[str] = "folds"
    count: int = 4

    def __post_init__(self) -> None:
        check_whole("count", self.count, 2)


@dataclass(frozen=True)
class LastShare:
    """The end of each training record is held out.

    Args:
        share: how much of each record, up to a half.

    Raises:
        ConfigError: not a share.
    """

    kind: ClassVar[str] = "last-share"
    share: float = 0.2

    def __post_init__(self) -> None:
        check_number("share", self.share, positive=True)
        if self.share > 0.5:
            raise ConfigError(
                f"`share` must be at most 0.5; got {self.share}. Training needs the larger part of each record."
            )


@dataclass(frozen=True)
class Given:
    """The validation records that `fit` is given are held out."""

    kind: ClassVar[str] = "given"


@dataclass(frozen=True)
class PaperTestHalf:
    """The paper's protocol: the first 512 samples of the test record, or half of it, choose the model."""

    kind: ClassVar[str] = "paper"


@dataclass(frozen=True)
class Fixed:
    """The structure is taken as it is; `auto` becomes its first choice."""

    kind: ClassVar[str] = "fixed"


@dataclass(frozen=True)
class Search:
    """Held-out data choose what the structure leaves to them: states, kind of network, a nonlinear g."""

    kind: ClassVar[str] = "search"


@dataclass(frozen=True)
class Recipe:
    """All that a fit does, but for the data, tau and the seed.

    Args:
        structure: what the model is.
        integration: how it is integrated.
        start: where the weights start.
        trainer: what trains them.
        holdout: what is held out to choose the model with; None for nothing, `auto` for folds, or for the end of long
            records.
        search: whether held-out data choose the structure.
        name: what the recipe is called.

    Raises:
        ConfigError: parts that do not go together.

    Example:
        >>> import tausid
        >>> recipe = tausid.recipes.paper(nx=2)
        >>> recipe.change({"trainer.steps": 300}).trainer.steps
        300
    """

    structure: Structure = field(default_factory=Structure)
    integration: Integration = field(default_factory=Integration)
    start: FromLinear | Random = field(default_factory=FromLinear)
    trainer: LevenbergMarquardt | Adam = field(default_factory=LevenbergMarquardt)
    holdout: Folds | LastShare | Given | PaperTestHalf | str | None = AUTO
    search: Fixed | Search = field(default_factory=Search)
    name: str = "own"

    def __post_init__(self) -> None:
        for part, kinds in PARTS.items():
            value = getattr(self, part)
            if not isinstance(value, kinds) and not (part == "holdout" and (value is None or value == AUTO)):
                names = ", ".join(kind.__name__ for kind in kinds)
                raise ConfigError(f"`{part}` of a recipe must be one of {names}; got {value!r}. Correct it.")
        if isinstance(self.trainer, Adam) and self.structure.initial_state == "free":
            raise ConfigError(
                "`initial_state` must be 'encoder' where Adam trains on windows, as a free state belongs to a whole "
                "record; got 'free'. Set structure.initial_state=encoder, or train by Levenberg-Marquardt."
            )
        if self.structure.encoder == "mlp" and self.structure.initial_state == "encoder":
            self._check_plain_encoder()
        if isinstance(self.trainer, LevenbergMarquardt) and self.structure.dae:
            raise ConfigError("`dae` must be false with Levenberg-Marquardt, which has no such penalty; got true.")

    def _check_plain_encoder(self) -> None:
        if isinstance(self.trainer, LevenbergMarquardt) or isinstance(self.start, FromLinear):
            raise ConfigError(
                "`encoder` must be 'residual' where its linear part is fitted to states, by Levenberg-Marquardt or a "
                "linear start; got 'mlp'. Change one."
            )

    @property
    def protocol(self) -> str:
        """`paper` where the test record takes part in the choice of the model, else `clean`."""
        return "paper" if isinstance(self.holdout, PaperTestHalf) else "clean"

    def change(self, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with other settings.

        Args:
            settings: values by key, such as `trainer.iterations`; whole parts by their name, such as `holdout`, with an
                object or its kind in words, such as `none` or `folds`.

        Returns:
            The recipe.

        Raises:
            ConfigError: an unknown key (the nearest known one is named), a key of another trainer, or a value that
                breaks its rule.
        """
        changed = {part: _as_part(self, part, value) for part, value in settings.items() if "." not in part}
        for key, value in as_settings(settings).items():
            part, dot, rest = key.partition(".")
            if dot:
                held = changed[part] if part in changed else _part_of(self, part)
                changed[part] = _changed(held, part, rest, value)
        return dataclasses.replace(self, **changed)  # parts must go together only now

    def with_structure(self, **settings: Any) -> Recipe:
        """The recipe with other settings of its structure.

        Args:
            **settings: fields of `Structure`.

        Returns:
            The recipe.
        """
        return dataclasses.replace(self, structure=dataclasses.replace(self.structure, **settings))

    def as_dict(self) -> dict[str, Any]:
        """The recipe as plain JSON values."""
        return {"name": self.name, **{part: _part_as_dict(getattr(self, part)) for part in PARTS}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe back from `as_dict`.

        Args:
            values: what `as_dict` gave.

        Returns:
            The recipe.
        """
        return cls(**{part: _part_from_dict(part, values[part]) for part in PARTS}, name=values["name"])


# The kinds of each part, the default one first.
PARTS: dict[str, tuple[type[Any], ...]] = {
    "structure": (Structure,),
    "integration": (Integration,),
    "start": (FromLinear, Random),
    "trainer": (LevenbergMarquardt, Adam),
    "holdout": (Folds, LastShare, Given, PaperTestHalf),
    "search": (Search, Fixed),
}
# Which recipes use a kind of start or trainer, for messages.
USED_BY = {
    LevenbergMarquardt: "the recipe default has",
    FromLinear: "the recipe default has",
    Adam: "the recipes windows and paper have",
    Random: "the recipes windows and paper have",
}


def setting_names() -> Iterator[str]:
    """All keys that `Recipe.change` knows."""
    for part, kinds in PARTS.items():
        yield part
        yield from dict.fromkeys(f"{part}.{item.name}" for kind in kinds for item in dataclasses.fields(kind))
    yield from (f"trainer.barrier.{item.name}" for item in dataclasses.fields(Barrier))


def _part_of(recipe: Recipe, part: str) -> Any:
    if part not in PARTS:
        raise ConfigError(_unknown_setting(part))
    return getattr(recipe, part)


def _unknown_setting(key: str) -> str:
    """Names the nearest known setting: of the same last word in any part, or of similar letters."""
    names, last = list(setting_names()), key.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    same += [f"{part}={last}" for part, kinds in PARTS.items() for kind in kinds if getattr(kind, "kind", "") == last]
    similar = difflib.get_close_matches(key, names, n=1) or difflib.get_close_matches(f"trainer.{last}", names, n=1)
    near = " or ".join(map(repr, same or similar))
    hint = f"Did you mean {near}?" if near else f"Its parts are {', '.join(PARTS)}."
    return f"unknown setting {key!r}; settings have names such as trainer.iterations. {hint}"


def _as_part(recipe: Recipe, part: str, value: Any) -> Any:
    held = _part_of(recipe, part)
    if not isinstance(value, str) or (part == "holdout" and value == AUTO):
        return value
    if part == "holdout" and value == "none":
        return None
    kinds = {kind.kind: kind for kind in PARTS[part] if hasattr(kind, "kind")}
    if value not in kinds:
        raise ConfigError(unknown_name(part, value, (*kinds, *(("none", AUTO) if part == "holdout" else ()))))
    return held if isinstance(held, kinds[value]) else kinds[value]()


def _changed(held: Any, part: str, key: str, value: Any) -> Any:
    """A part with another value of one of its settings."""
    if key.startswith("barrier.") and isinstance(held, Adam):
        barrier = held.barrier or Barrier()
        return dataclasses.replace(held, barrier=_changed(barrier, "trainer.barrier", key[8:], value))
    if key == "barrier" and value in ("none", None):
        value = None
    if _has(type(held), key):
        return dataclasses.replace(held, **{key: value})
    for kind in PARTS.get(part, ()):
        if not isinstance(held, kind) and _has(kind, key):
            if part == "holdout":
                return kind(**{key: value})
            raise ConfigError(
                f"`{part}.{key}` is a setting of {kind.__name__}, which {USED_BY[kind]}; this one has "
                f"{type(held).__name__}. Choose such a recipe, or set {part}={kind.kind}."
            )
    raise ConfigError(_unknown_setting(f"{part}.{key}"))


def _has(kind: type[Any], key: str) -> bool:
    names = [item.name for item in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    return key in names or (key.startswith("barrier.") and "barrier" in names)


def _part_as_dict(part: Any) -> Any:
    if part is None or isinstance(part, str):
        return part
    values = as_plain(part)
    if isinstance(part, Adam) and part.barrier is not None:
        values["barrier"] = as_plain(part.barrier)
    return {"kind": part.kind, **values} if hasattr(part, "kind") else values


def _part_from_dict(part: str, values: Any) -> Any:
    if values is None or isinstance(values, str):
        return values
    settings = as_settings({key: value for key, value in values.items() if key != "kind"})
    if settings.get("barrier") is not None:
        settings["barrier"] = Barrier(**settings["barrier"])
    kinds = PARTS[part]
    kind = next((k for k in kinds if k.kind == values["kind"]), kinds[0]) if "kind" in values else kinds[0]
    return kind(**settings)


def _check_output_weights(weights: object) -> None:
    if weights is None:
        return
    if not isinstance(weights, tuple) or not weights:
        raise ConfigError(f"`output_weights` must be a list of numbers, one per output; got {weights!r}.")
    for weight in weights:
        check_number("output_weights", weight)
    if not any(weights):
        raise ConfigError("`output_weights` must not all be zero; got only zeros. Give one output a weight.")
