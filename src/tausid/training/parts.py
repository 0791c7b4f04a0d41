"""The parts of a recipe: where the weights start, what trains them, what is held out, and what is searched for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tausid.checks import check_choice, check_flag, check_number, check_whole
from tausid.errors import ConfigError
from tausid.model.build import Weights
from tausid.model.structure import AUTO, Integration, Structure

FULL = "full"  # a horizon as long as the longest record: full simulation error, eq. 3
EVIDENCE = "evidence"  # a weight decay that the data decide
PER_TAU, BY_RESIDUALS = "tau", "residuals"  # which samples count as independent
SQUARES, ROBUST = "squares", "robust"  # how much large errors count


@dataclass(frozen=True)
class FromLinear:
    """The linear parts start from the best linear approximation.

    Args:
        nonlinear: output layers of the nonlinear parts: `zero`, so that training starts at the linear model, or
            `random`.
        weight_range: other weights are uniform in [-weight_range, weight_range].
        bias_range: biases are uniform in [-bias_range, bias_range].
        stretches: whether Levenberg-Marquardt begins with short stretches of the records, each with an initial state of
            its own, that grow step by step: for plants that are strongly nonlinear and hardly damped.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "from-linear"
    nonlinear: str = "zero"
    weight_range: float = 1.0
    bias_range: float = 1.0
    stretches: bool = False

    def __post_init__(self) -> None:
        check_choice("nonlinear", self.nonlinear, ("zero", "random"))
        check_flag("stretches", self.stretches)
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
class RandomDynamics:
    """Weights start from random stable dynamics with rates and frequencies around 1/tau; the best of several goes on.

    Where an output is an even function of a state, a linear approximation says nothing, and this is the way in.

    Args:
        count: how many starts are tried for some iterations.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "random-dynamics"
    count: int = 4

    def __post_init__(self) -> None:
        check_whole("count", self.count, 1)

    @property
    def weights(self) -> Weights:
        """How random weights are drawn."""
        return Weights(1.0, 1.0, nonlinear="zero")


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Levenberg-Marquardt on the simulation error of whole records (eq. 3), in double precision.

    Args:
        iterations: most iterations; held-out data may choose fewer.
        decay: weight decay of the nonlinear parts; `evidence` for what the data say.
        independent: which samples the evidence counts: `tau`, one per time constant, or `residuals`, as many as the
            autocorrelation of the residuals says.
        output_weights: how much the squared error of each output counts, in training and validation; None is equally.
        loss: in training and validation, `squares` of all errors, or `robust`, where errors beyond four usual ones
            count as these; `auto` is robust where outputs have outliers.

    Raises:
        ConfigError: a setting breaks its rule.
    """

    kind: ClassVar[str] = "levenberg-marquardt"
    iterations: int = 150
    decay: float | str = EVIDENCE
    independent: str = PER_TAU
    output_weights: tuple[float, ...] | None = None
    loss: str = AUTO

    def __post_init__(self) -> None:
        check_whole("iterations", self.iterations, 1)
        if self.decay != EVIDENCE:
            check_number("decay", self.decay)
        check_choice("independent", self.independent, (PER_TAU, BY_RESIDUALS))
        check_choice("loss", self.loss, (AUTO, SQUARES, ROBUST))
        _check_output_weights(self.output_weights)

    @property
    def most(self) -> int:
        """Most iterations."""
        return self.iterations

    @property
    def robust(self) -> bool:
        """Whether errors far beyond the usual ones count less."""
        return self.loss == ROBUST


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

    @property
    def robust(self) -> bool:
        """Whether errors far beyond the usual ones count less: they do not."""
        return False


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


def _check_output_weights(weights: object) -> None:
    if weights is None:
        return
    if not isinstance(weights, tuple) or not weights:
        raise ConfigError(f"`output_weights` must be a list of numbers, one per output; got {weights!r}.")
    for weight in weights:
        check_number("output_weights", weight)
    if not any(weights):
        raise ConfigError("`output_weights` must not all be zero; got only zeros. Give one output a weight.")


# The kinds of each part, the default one first.
PARTS: dict[str, tuple[type[Any], ...]] = {
    "structure": (Structure,),
    "integration": (Integration,),
    "start": (FromLinear, RandomDynamics, Random),
    "trainer": (LevenbergMarquardt, Adam),
    "holdout": (Folds, LastShare, Given, PaperTestHalf),
    "search": (Search, Fixed),
}
# Which recipes use a kind of start or trainer, for messages.
USED_BY = {
    LevenbergMarquardt: "the recipe default has",
    FromLinear: "the recipe default has",
    RandomDynamics: "the recipe default tries",
    Adam: "the recipes windows and paper have",
    Random: "the recipes windows and paper have",
}
