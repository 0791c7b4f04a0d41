"""The training loop: steps, validation, recovery, early stopping. No disk, no terminal, no signals."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from tausid.data.records import Record
from tausid.model.config import Config
from tausid.model.evaluation import evaluate
from tausid.model.model import Model
from tausid.training.objective import trainable
from tausid.training.optimiser import OptimiserState, StepSettings, learning_rate, mean_one, run_steps, window_error
from tausid.training.progress import ProgressUpdate
from tausid.training.protocols import Split
from tausid.training.result import HistoryRow
from tausid.training.windows import WindowSource

# After a step that is not finite the learning rate is multiplied by this.
RECOVERY_FACTOR = 0.3


@dataclass(frozen=True, eq=False)
class Stage:
    """A share of the steps, with windows of one length.

    Args:
        source: training windows.
        batch: windows per step.
        stop: steps taken when it ends.
    """

    source: WindowSource
    batch: int
    stop: int


@dataclass(frozen=True, eq=False)
class Problem:
    """What is trained on what; constant during training.

    Args:
        config: the settings.
        split: records by role.
        initial_model: the untrained model.
        stages: training windows, by the steps they are for; usually one stage.
        validation_source: validation windows, where these are what is validated and not free runs.
        last_step: where training ends, if before `max_steps`, which the schedule goes by.
        linear_order: states of the linear approximation that the weights start from; None where they do not.
    """

    config: Config
    split: Split
    initial_model: Model
    stages: tuple[Stage, ...]
    validation_source: WindowSource | None = None
    last_step: int | None = None
    linear_order: int | None = None

    @property
    def source(self) -> WindowSource:
        """The windows of the first stage."""
        return self.stages[0].source

    @property
    def stop(self) -> int:
        """The last step."""
        return self.config.max_steps if self.last_step is None else self.last_step

    @property
    def last_stage_start(self) -> int:
        """Steps taken when the last stage begins."""
        return self.stages[-2].stop if len(self.stages) > 1 else 0

    def stage(self, step: int) -> Stage:
        """The stage that a step belongs to."""
        return next(stage for stage in self.stages if step < stage.stop)

    def model_with(self, weights: PyTree[Array]) -> Model:
        """The model with these trained arrays."""
        start = self.initial_model.state_space
        fixed = eqx.partition(start, trainable(start))[1]
        return dataclasses.replace(self.initial_model, state_space=eqx.combine(weights, fixed))


@dataclass(frozen=True, eq=False)
class RunState:
    """Where training is; replaced as a whole after every chunk of steps.

    Args:
        optimiser: weights, moments, step and scale of the learning rate.
        best_weights: trained arrays with the best validation score.
        best_score: that score, normalized; infinite before the first finite one.
        best_step: its step.
        recoveries: how often training went back to its best state.
        history: one row per validation.
        seconds: time spent.
        status: `running`, `completed`, `early-stopped`, `interrupted` or `diverged`.
        finished: whether the second-order steps at the end were taken.
        from_fold: the fold whose weights these steps began with, counted from 1; 0 where they began with their own.
    """

    optimiser: OptimiserState
    best_weights: PyTree[Array]
    best_score: float
    best_step: int
    recoveries: int
    history: tuple[HistoryRow, ...]
    seconds: float
    status: str
    finished: bool = False
    from_fold: int = 0

    @property
    def step(self) -> int:
        """Steps taken."""
        return int(self.optimiser.step)


def start_run(problem: Problem) -> RunState:
    """The state before the first step, with the untrained model as the best so far."""
    model = problem.initial_model.state_space
    weights = eqx.filter(model, trainable(model))
    first = score(problem, problem.initial_model)
    return RunState(
        optimiser=OptimiserState.start(weights),
        best_weights=weights,
        best_score=first if np.isfinite(first) else np.inf,
        best_step=0,
        recoveries=0,
        history=(),
        seconds=0.0,
        status="running" if problem.stop > 0 else "completed",
    )


def advance(problem: Problem, run: RunState) -> RunState:
    """One chunk of steps, then a validation and a decision."""
    began = time.perf_counter()
    config = problem.config
    stage = problem.stage(run.step)
    count = min(config.validate_every, stage.stop - run.step, problem.stop - run.step)
    optimiser, loss, good = run_steps(
        run.optimiser,
        problem.initial_model.state_space,
        stage.source,
        jnp.asarray(count, jnp.int32),
        jax.random.key(config.seed),
        dataclasses.replace(StepSettings.from_config(config), batch=stage.batch),
        problem.initial_model.integrator,
    )
    finite = bool(good)  # waits for the steps to be done
    run = dataclasses.replace(run, optimiser=optimiser, seconds=run.seconds + time.perf_counter() - began)
    return _decide(_validate(problem, run, float(loss)) if finite else _recover(run, config), problem)


def progress_update(problem: Problem, before: RunState, run: RunState) -> ProgressUpdate:
    """How training goes."""
    row = run.history[-1] if run.history else None
    return ProgressUpdate(
        step=run.step,
        max_steps=problem.stop,
        loss=row.loss if row else float("nan"),
        validation=row.validation if row else float("nan"),
        best=run.best_score,
        best_step=run.best_step,
        recoveries=run.recoveries,
        steps_per_second=(run.step - before.step) / max(run.seconds - before.seconds, 1e-9),
        status=run.status,
    )


def validation_score(
    model: Model, records: Sequence[Record], deviation: Float[np.ndarray, "ny"] | None = None
) -> float:
    """Root mean squared free-run error over all validation records and outputs, each output normalized and weighted."""
    if not records:
        return float("nan")
    scores = [evaluate(model, record) for record in records]
    weights = mean_one(model.config.output_weights)
    deviation = model.scaling.y_std if deviation is None else deviation
    relative = [np.array(list(s.rmse.values())) / deviation for s in scores]
    squares = [np.mean(r**2 if weights is None else weights * r**2) for r in relative]
    return float(np.sqrt(np.average(squares, weights=[s.n_scored for s in scores])))


def score(problem: Problem, model: Model) -> float:
    """What decides which model is the best: the error of free runs, or of windows."""
    if problem.validation_source is None:
        return validation_score(model, problem.split.validation)
    engine = StepSettings.from_config(problem.config).engine
    return float(np.sqrt(window_error(model.state_space, problem.validation_source, model.integrator, engine)))


def _validate(problem: Problem, run: RunState, loss: float) -> RunState:
    began = time.perf_counter()
    model = problem.model_with(run.optimiser.weights)
    now = score(problem, model)
    seconds = run.seconds + time.perf_counter() - began
    better = now < run.best_score or not problem.split.validation
    rate = float(learning_rate(StepSettings.from_config(problem.config))(run.step)) * float(run.optimiser.rate_scale)
    row = HistoryRow(run.step, loss, now, rate, model.tau, seconds, run.optimiser.gradient_norm)
    return dataclasses.replace(
        run,
        best_weights=run.optimiser.weights if better else run.best_weights,
        best_score=now if better else run.best_score,
        best_step=run.step if better else run.best_step,
        history=(*run.history, row),
        seconds=seconds,
    )


def _recover(run: RunState, config: Config) -> RunState:
    """Back to the best weights with a lower learning rate; the step counts on."""
    if run.recoveries == config.max_recoveries:
        return dataclasses.replace(run, status="diverged")
    scale = float(run.optimiser.rate_scale) * RECOVERY_FACTOR
    optimiser = OptimiserState.start(run.best_weights, step=run.step + 1, rate_scale=scale)
    return dataclasses.replace(run, optimiser=optimiser, recoveries=run.recoveries + 1)


def _decide(run: RunState, problem: Problem) -> RunState:
    config, validated = problem.config, bool(problem.split.validation)
    if run.status != "running":
        return run
    if run.step >= problem.stop:
        simulates = not validated or np.isfinite(run.best_score)
        return dataclasses.replace(run, status="completed" if simulates else "diverged")
    # A longer horizon takes its time to pay: patience begins with the last one.
    if validated and run.step - max(run.best_step, problem.last_stage_start) >= config.patience:
        simulates = np.isfinite(run.best_score)
        return dataclasses.replace(run, status="early-stopped" if simulates else "diverged")
    return run
