"""Every setting of a fit in one place, each with its default and its reason; and the named recipes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tausid.errors import ConfigError, unknown_name

LARGEST = 2**31 - 1  # of whole numbers, seeds among them
AUTO = "auto"  # left to the data
FULL = "full"  # a horizon as long as the longest record: full simulation error, eq. 3

Limits = str | tuple[Any, ...]  # of outputs: `none`, `auto`, a pair, or a pair per output


@dataclass(frozen=True)
class Config:
    """All settings of a fit but the data and tau; `recipe_config` makes one from a recipe's name and changes.

    Args:
        recipe: name of the recipe that the settings started from.
        protocol: what validation may see: `clean` or `paper`.
        seed: seed of the initial weights and of the windows drawn.
        nx: number of states; `auto` for as many as the best linear approximation has, with an encoder that sees at
            least two samples for each; where held-out data are at hand and Adam is not, they may say otherwise.
        network: function approximator of f, g and the encoder: `mlp` or `polynomial`; `auto` for the first or, where
            held-out data say so and Adam is left out, the second.
        hidden: widths of the hidden layers.
        activation: activation function of the hidden layers; `auto` for `leaky_relu` or, where held-out data say so
            and Adam is left out, `tanh`.
        degree: degree of a `polynomial` network.
        weight_range: initial weights are uniform in [-weight_range, weight_range].
        bias_range: initial biases are uniform in [-bias_range, bias_range].
        A_start: initial A: `zero-mean` like all other weights, `-I` plus those, or `-MM'` plus those, with M uniform in
            [-1, 1] / sqrt(nx): negative definite, with fast and slow states.
        A_form: `free`, or `negative-definite`: A + A' is negative definite whatever the weights are.
        init: where the weights start: `random`, or `bla`, the linear parts from the best linear approximation.
        nonlinear_start: the nonlinear parts at the start: `random`, or `zero`, their output layers at zero.
        initial_state: `encoder` (from past data), or `free` (a parameter per record, eq. 3).
        initial_samples: leading samples of a new record that an initial state is estimated from, by least squares, and
            that are not scored; 5 nx, if that is more. `auto` for 20, and where initial states are free for three tau,
            if that is more, up to a sixteenth of the shortest training record.
        encoder: the encoder's network: `residual`, as f and g, or `mlp`, hidden layers without a linear part.
        na: past outputs that the encoder sees.
        nb: past inputs that the encoder sees.
        clock: `irregular` where the encoder sees the time stamps of its samples, too; `regular` where it does not;
            `auto` becomes the first where the training records have more than one time step.
        correction: what corrects known equations, where such are given: `none`, or a `network` in the state equation.
        feedthrough: whether the outputs depend on the inputs at once, y = g(x, u), or not, y = g(x).
        output_limits: range of the simulated outputs in physical units: `none`; [lowest, highest] for one output or one
            such pair per output, None for an open end; or `auto`, where the training records run into a limit.
        stepper: explicit Runge-Kutta method.
        substeps: integration steps per sampling interval.
        max_dt: longest integration step in seconds: longer intervals are split. None is 1.5 times the median
            sampling interval over `substeps`, so that jitter costs nothing and a lost sample one step more.
        max_gap: longest sampling interval in seconds that is no gap; windows do not cross gaps. None is ten times the
            median one of each record.
        hold: inputs between samples: `zero` or `first`, for all or one per input.
        engine: what computes the rollout: `fused` (C++), `scan` (JAX), or `auto`, the first where it can.
        threads: threads of the fused engine; one, because one process per core is faster for models this small.
        horizon: samples per training window, J; `full` for one window per record. A list, such as [64, 256, "full"],
            grows in equal shares of `max_steps`.
        batch: windows per step; with a list of horizons, of the first: later ones take as many samples per step.
        window_order: how windows are drawn: `random`, with replacement, or `epochs`, shuffled passes over all of them.
        max_steps: most steps of Adam; 0 leaves it out.
        patience: steps without a better validation score after which training stops.
        validate_every: steps between two validations.
        validation_error: what is validated: `free-run` simulations of the validation records, or `windows` of them.
        folds: held-out stretches per training record that choose the number of Adam's steps, or without those of the
            finish's iterations, before a final fit on everything; 0 for none. They take the place of
            `validation_fraction`.
        validation_fraction: share of each training record held out at its end (`clean` protocol); 0 for none.
        output_weights: how much the squared error of each output counts, in training and validation; None is equally.
        finish: what follows Adam, or takes its place where `max_steps` is 0: `none`, or `lm`, Levenberg-Marquardt on
            the full simulation error in double precision.
        finish_steps: most iterations of the finish; folds may choose fewer.
        finish_parts: whose nonlinear parts the finish trains: `f`, those of the state network alone; `both`, those of
            the output network, too; or `auto`, what held-out data say, and `both` without these or with Adam.
        learning_rate: Adam's rate at the first step.
        schedule: how the rate falls: `three-step` or `cosine`.
        weight_decay: lambda_W of the weight decay.
        nonlinear_decay: weight decay on the nonlinear parts of the networks only, on top of `weight_decay`.
        contraction_weight: lambda_C of the penalty on trajectories that move apart; 0 leaves it out.
        dae_weight: lambda_D of the DAE penalty; 0 leaves the DAE network out.
        barrier_weight: lambda_N of the barrier on A; 0 leaves it out.
        barrier_form: `hinge`, zero where A is negative definite, or `sigmoid`, a smooth step.
        max_recoveries: how often a run may go back to its best state after NaN or infinity.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    recipe: str = "windows"
    protocol: str = "clean"
    seed: int = 0

    # The model.
    nx: int | str = 4  # more states than the tanks' two: simpler nonlinearities suffice (state augmentation)
    network: str = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "leaky_relu"
    degree: int = 3
    weight_range: float = 0.01
    bias_range: float = 0.0
    A_start: str = "-I"  # free runs of an untrained model then settle instead of drifting
    A_form: str = "free"
    init: str = "random"
    nonlinear_start: str = "random"
    initial_state: str = "encoder"
    initial_samples: int | str = AUTO
    encoder: str = "residual"
    na: int = 5
    nb: int = 5
    clock: str = "auto"
    correction: str = "none"
    feedthrough: bool = True
    output_limits: Limits = "none"

    # The integration.
    stepper: str = "rk4"
    substeps: int = 1
    max_dt: float | None = None
    max_gap: float | None = None
    hold: str | tuple[str, ...] = "zero"
    engine: str = "auto"
    threads: int = 1

    # The optimisation.
    horizon: int | str | tuple[int | str, ...] = 128
    batch: int = 64
    window_order: str = "random"
    max_steps: int = 6000
    patience: int = 2000
    validate_every: int = 50
    validation_error: str = "free-run"
    folds: int = 0
    validation_fraction: float = 0.2
    output_weights: tuple[float, ...] | None = None
    learning_rate: float = 3e-3
    schedule: str = "cosine"
    weight_decay: float = 1e-6
    nonlinear_decay: float = 0.0
    contraction_weight: float = 0.0
    dae_weight: float = 0.0
    barrier_weight: float = 0.0
    barrier_form: str = "hinge"
    max_recoveries: int = 5
    finish: str = "none"
    finish_steps: int = 50
    finish_parts: str = "both"

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ConfigError(unknown_name(name, getattr(self, name), known))
        for name, least in WHOLE_NUMBERS.items():
            _check_whole(name, getattr(self, name), least)
        for name in ("nx", "initial_samples"):
            if getattr(self, name) != AUTO:
                _check_whole(name, getattr(self, name), 1)
        if not isinstance(self.hidden, tuple):
            raise ConfigError(f"`hidden` must be a list of widths; got {self.hidden!r}. Write [64, 64].")
        for width in self.hidden:
            _check_whole("hidden", width, 1)
        if not self.horizons:
            raise ConfigError('`horizon` must have at least one entry; got an empty list. Write [64, 256, "full"].')
        for horizon in self.horizons:
            if horizon != FULL:
                _check_whole("horizon", horizon, 2)
        if self.initial_state == "free" and self.horizon != FULL:
            raise ConfigError(
                f"`initial_state` 'free' must have horizon='full', as a record has one initial state and not one per "
                f"window; got horizon={self.horizon!r}. Use horizon='full', or the encoder."
            )
        if self.folds == 1 or (self.folds and self.protocol == "paper"):
            raise ConfigError(
                "`folds` must be 0, or 2 and more with protocol='clean'; got "
                f"folds={self.folds} and {self.protocol!r}. Change one of them."
            )
        self._check_finish()
        if self.folds and self.max_steps > 0 and self.initial_state == "free":
            raise ConfigError(
                "`folds` of Adam must have initial_state='encoder', as they cut records; got 'free'. Change one."
            )
        if self.init == "bla" and self.encoder == "mlp":
            raise ConfigError(
                "`init` 'bla' must have encoder='residual', whose linear part it sets; got encoder='mlp'. Change one."
            )
        for name in ("learning_rate", "weight_range", "max_dt", "max_gap"):
            if getattr(self, name) is not None or name not in FROM_DATA:
                _check_number(name, getattr(self, name), least=0.0, open_end=True)
        if not isinstance(self.feedthrough, bool):
            raise ConfigError(f"`feedthrough` must be true or false; got {self.feedthrough!r}. Choose one.")
        self._check_weights()
        _check_limits(self.output_limits)
        for name in (
            "weight_decay",
            "nonlinear_decay",
            "contraction_weight",
            "dae_weight",
            "barrier_weight",
            "bias_range",
        ):
            _check_number(name, getattr(self, name), least=0.0, open_end=False)
        names = self.hold if isinstance(self.hold, tuple) else (self.hold,)
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"`hold` must be 'zero' or 'first', or one of these per input; got {self.hold!r}.")
        _check_number("validation_fraction", self.validation_fraction, least=0.0, open_end=False)
        if self.validation_fraction > 0.5:
            raise ConfigError(
                f"`validation_fraction` must be from 0 to 0.5; got {self.validation_fraction}. "
                "Training needs the larger part of each record."
            )

    def _check_finish(self) -> None:
        if self.finish == "none" and self.max_steps == 0:
            raise ConfigError(
                "`max_steps` must be at least 1 with finish='none', as nothing is trained otherwise; got 0."
            )
        if self.finish != "none" and self.folds and self.max_steps > 0:
            raise ConfigError(
                f"`max_steps` must be 0 where folds choose the iterations of finish={self.finish!r}; got "
                f"{self.max_steps}. Leave `max_steps` out, or take recipe='windows', which is trained by Adam."
            )
        if self.finish != "none" and self.encoder == "mlp" and self.initial_state == "encoder":
            raise ConfigError(
                "`finish` must have encoder='residual', whose linear part follows the states; got encoder='mlp'. "
                "Change one."
            )

    def _check_weights(self) -> None:
        weights = self.output_weights
        if weights is None:
            return
        if not isinstance(weights, tuple) or not weights:
            raise ConfigError(f"`output_weights` must be a list of numbers, one per output; got {weights!r}.")
        for weight in weights:
            _check_number("output_weights", weight, least=0.0, open_end=False)
        if not any(weights):
            raise ConfigError("`output_weights` must not all be zero; got only zeros. Give one output a weight.")

    @property
    def order(self) -> int:
        """The number of states, once the data have said it.

        Raises:
            ConfigError: `nx` is still `auto`.
        """
        if isinstance(self.nx, str):
            raise ConfigError(f"`nx` must be a number where no records are at hand; got {self.nx!r}. Give one.")
        return self.nx

    @property
    def horizons(self) -> tuple[int | str, ...]:
        """The horizon of each stage of training, one or several."""
        return self.horizon if isinstance(self.horizon, tuple) else (self.horizon,)

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return {name: _listed(value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """The settings back from `as_dict`.

        Args:
            values: what `as_dict` gave.

        Returns:
            The settings.
        """
        return _with_settings(cls(), values)


CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": ("clean", "paper"),
    "network": ("mlp", "polynomial", AUTO),
    "A_start": ("zero-mean", "-I", "-MM'"),
    "A_form": ("free", "negative-definite"),
    "init": ("random", "bla"),
    "nonlinear_start": ("random", "zero"),
    "initial_state": ("encoder", "free"),
    "encoder": ("residual", "mlp"),
    "clock": ("auto", "regular", "irregular"),
    "correction": ("none", "network"),
    "schedule": ("three-step", "cosine"),
    "window_order": ("random", "epochs"),
    "validation_error": ("free-run", "windows"),
    "barrier_form": ("hinge", "sigmoid"),
    "engine": ("auto", "fused", "scan"),
    "finish": ("none", "lm"),
    "finish_parts": ("both", "f", AUTO),
}

# Settings that are found from the data where they are None.
FROM_DATA = ("max_dt", "max_gap")

WHOLE_NUMBERS: dict[str, int] = {
    "seed": 0,
    "degree": 1,
    "na": 0,
    "nb": 0,
    "substeps": 1,
    "threads": 1,
    "batch": 1,
    "max_steps": 0,
    "patience": 1,
    "validate_every": 1,
    "max_recoveries": 0,
    "finish_steps": 1,
    "folds": 0,
}


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        limit = f" and at most {LARGEST}" if isinstance(value, int) and value > LARGEST else ""
        raise ConfigError(f"`{name}` must be a whole number of at least {least}{limit}; got {value!r}. Correct it.")


def _check_limits(limits: object) -> None:
    if limits in ("none", "auto"):
        return
    pairs = limits if isinstance(limits, tuple) and all(isinstance(pair, tuple) for pair in limits) else (limits,)
    if not pairs or not all(_is_range(pair) for pair in pairs):
        raise ConfigError(
            "`output_limits` must be 'none', 'auto', [lowest, highest], or one such pair per output; "
            f"got {limits!r}. Write, for instance, [0, 10], or [null, 10] for an open end."
        )


def _is_range(pair: object) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    ends = [end for end in pair if end is not None]
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end) for end in ends)
    return numbers and (len(ends) < 2 or ends[0] < ends[1])


def _check_number(name: str, value: object, *, least: float, open_end: bool) -> None:
    fits = isinstance(value, int | float) and math.isfinite(value) and value >= least
    if not fits or (open_end and value == least):
        rule = "positive" if open_end else "zero or positive"
        raise ConfigError(f"`{name}` must be a {rule} number; got {value!r}. Correct it.")


RECIPES: dict[str, Config] = {
    # A small network grown out of the linear approximation; folds say how far. See docs/recipe.md for the evidence.
    "default": Config(
        recipe="default",
        nx=AUTO,
        network=AUTO,
        hidden=(20,),
        activation=AUTO,
        weight_range=1.0,
        bias_range=1.0,
        init="bla",
        nonlinear_start="zero",
        initial_state="free",
        output_limits=AUTO,
        horizon=FULL,
        max_steps=0,
        folds=4,
        validation_fraction=0.0,
        weight_decay=1e-8,
        nonlinear_decay=1e-6,
        finish="lm",
        finish_steps=120,
        finish_parts=AUTO,
    ),
    # Deep networks on windows, by Adam.
    "windows": Config(recipe="windows"),
    # Section 5 of the paper, to the letter; what it leaves open is named in docs/training.md.
    "paper": Config(
        recipe="paper",
        A_start="zero-mean",
        encoder="mlp",
        schedule="three-step",
        max_steps=20_000,
        weight_decay=1e-8,
        dae_weight=1e3,
        barrier_weight=1e12,
    ),
}


def recipe_config(recipe: str = "default", **settings: Any) -> Config:
    """The settings of a named recipe, with changes.

    Args:
        recipe: `default`, `windows` or `paper`.
        **settings: fields of `Config` to change.

    Returns:
        The settings.

    Raises:
        ConfigError: an unknown recipe or setting (the nearest known one is named), or a value breaks its rule.

    Example:
        >>> recipe_config("paper", nx=2).barrier_weight
        1000000000000.0
    """
    if not isinstance(recipe, str) or recipe not in RECIPES:
        raise ConfigError(unknown_name("recipe", recipe, RECIPES))
    return _with_settings(RECIPES[recipe], settings)


def _with_settings(config: Config, settings: dict[str, Any]) -> Config:
    known = [field.name for field in dataclasses.fields(Config)]
    for name in settings:
        if name not in known:
            raise ConfigError(unknown_name("setting", name, known))
    plain: dict[str, Any] = {name: _plain(value) for name, value in settings.items()}
    return dataclasses.replace(config, **plain)


def _listed(value: Any) -> Any:
    """Tuples as lists, those within them, too."""
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _plain(value: Any) -> Any:
    """Lists as tuples, and numpy's numbers as Python's."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value
