"""Trials on held-out data: a candidate is trained without some outputs and simulates them, fold by fold."""

from __future__ import annotations

import dataclasses
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait

import numpy as np
from threadpoolctl import threadpool_limits

from tausid.errors import DataError
from tausid.model.arrays import fill_arrays
from tausid.model.model import Model
from tausid.model.state_space import StateSpace
from tausid.model.structure import SAMPLES_PER_STATE
from tausid.training.candidates import has_one_start, is_linear
from tausid.training.checkpoint import load_trials, save_trials
from tausid.training.consensus import Panel
from tausid.training.driver import Session, trainer_of
from tausid.training.full_error import full_error, is_compiled
from tausid.training.holdout import cut_folds
from tausid.training.jobs import Job, Trial, cannot_train, failed, finished, job_key, lasts
from tausid.training.least_squares import iterate
from tausid.training.parts import FromLinear, LevenbergMarquardt, RandomDynamics
from tausid.training.pooling import NEGLIGIBLE, geometric_mean, pool, value_at
from tausid.training.problem import Problem, recipe_score
from tausid.training.processes import LocalWorkers, usable_cores
from tausid.training.recipe import Recipe
from tausid.training.resolve import Task
from tausid.training.result import FoldCurves
from tausid.training.run_state import RunState, Status
from tausid.training.search_progress import SearchProgress
from tausid.training.stretched_start import join_stretches
from tausid.training.stretches import every_needed

# A candidate is given up where one, two, three folds leave it behind by these factors. One fold may be unlike others:
# so many of those that are not linear go on after the first.
HOPELESS, GO_ON = (2.0, 1.3, 1.2), 3
# A fold is trained again where its training error is so many times the lowest one of the same candidate.
STUCK = 2.0
# Iterations after which the better half of several random starts goes on, and then the best of them alone.
SCREENED = (8, 20)
# What trials say that were not done, or given up.
NOTHING = FoldCurves((), (), (np.inf,), 0)
SECONDS_BETWEEN_LOOKS = 0.05
# Samples times iterations of all jobs beyond which they are done by processes: some two seconds.
WORTH_PROCESSES = 500_000
# Seconds without a finished job after which those that run are told of.
SILENCE = 2.0


class Trials:
    """Trials of candidates on the same held-out data, on all cores; those that are on disk are not repeated.

    Args:
        task: what is fitted.
        session: progress, folder, Ctrl-C.
    """

    def __init__(self, task: Task, session: Session) -> None:
        self.task = task
        self.session = session
        split, tau, every = task.problem.split, float(np.min(task.problem.initial_model.tau)), 1
        if split.validation:  # folds take all samples
            every = every_needed((*split.train, *split.validation), tau)
        self.splits = cut_folds(split, task.problem.recipe, every)
        self.done: dict[Job, Trial] = {}
        # As they were trained: what is written, so that a resumed race is the same.
        self._trained: dict[Job, Trial] = {}
        self._own_errors: dict[Job, float] = {}
        self._lasting: dict[Model, bool] = {}
        self.must_last = True  # whether candidates that run away do not count
        self._begun: dict[Job, Future[Trial | None]] = {}  # not collected yet, those done ahead among them
        self._closed = self._alone = False
        self._cores = usable_cores()
        self._threads: ThreadPoolExecutor | None = None
        self._workers: LocalWorkers | None = None
        self.progress = SearchProgress(split, self.splits)
        self._stored = {} if session.folder is None else load_trials(session.folder, task.problem)

    @property
    def tried_on(self) -> str:
        """In words, what part of long records structures are tried on; empty for all of them."""
        whole, tried = self.task.problem.split.train, self.splits[0].train if self.splits else ()
        if sum(map(len, tried)) >= sum(map(len, whole)) or not tried:
            return ""
        rate = "" if tried[0].ts < 1.5 * whole[0].ts else f" at {1 / tried[0].ts:.4g} Hz"
        count = f"{len(tried)} stretch{'es' * (len(tried) > 1)}"
        return f"Structures were tried on {sum(map(len, tried))} samples{rate}, in {count}."

    @functools.cached_property
    def panel(self) -> Panel:
        """What models of finished jobs are compared by."""
        return Panel(self.task.problem.split.train, self.task.problem.seed)

    @property
    def most_states(self) -> int:
        """So many states that all held-out data are long enough for their estimate."""
        lengths = [len(record) for split in self.splits for record in split.validation]
        return min(lengths, default=0) // (2 * SAMPLES_PER_STATE)

    def run(self, jobs: Sequence[Job], later: int = 0, ahead: Callable[[], Job | None] = lambda: None) -> None:
        """Do all of these that are not done, side by side; after an interruption those that were finished count.

        So many more are expected later in the same race. Cores without a job take what `ahead` names: it counts once it
        is asked for, so that the result does not depend on the number of cores.
        """
        waiting = sorted((job for job in jobs if job not in self.done), key=_brevity)
        self.progress.plan(waiting, self.done, later)
        # What has no other beside it is done here, where its iterations are seen as they go.
        self._alone = len(waiting) == 1 and ahead() is None
        if self._workers is None and self._cores > 1 and self._is_worth_processes(waiting):
            initargs = (self.task.fresh(),)
            self._workers = LocalWorkers(self._cores, initializer=_begin_worker, initargs=initargs, program=False)
        # One job per core: more threads within each of them would only wait for one another.
        with threadpool_limits(1, user_api="blas"):
            try:
                self._collect({self._begin(job): job for job in waiting}, ahead)
            except BaseException:
                self.session.interrupted.set()  # the others end after their iteration
                raise
            finally:
                self._save()

    def close(self) -> None:
        """End all that still runs."""
        self._closed = True
        self._end_processes()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _end_processes(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown(wait=False)

    def _begin(self, job: Job) -> Future[Trial | None]:
        """A job in a thread of its own, unless it was begun ahead."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._cores)
        if job not in self._begun:
            self._begun[job] = self._threads.submit(self._do, job)
        return self._begun[job]

    def _is_worth_processes(self, waiting: Sequence[Job]) -> bool:
        """Whether there is more to do than processes need to begin; JAX would compile in each of them."""
        problem = self.task.problem
        compiled = is_compiled(problem.initial_model)
        by_lm = isinstance(problem.recipe.trainer, LevenbergMarquardt)
        steps = sum(problem.recipe.trainer.most * self.progress.samples(job.fold) for job in waiting)
        return compiled and by_lm and len(waiting) > 1 and steps > WORTH_PROCESSES

    def of(self, recipe: Recipe, folds: Iterable[int] | None = None) -> FoldCurves:
        """What the trials of one candidate say together; infinite where one is missing, or runs away."""
        jobs = [Job(recipe, k) for k in (range(len(self.splits)) if folds is None else folds)]
        if not jobs or any(job not in self.done or self.runs_away(job) for job in jobs):
            return NOTHING
        return pool([self.done[job].curve for job in jobs])

    def loss_at_best(self, recipe: Recipe) -> float:
        """The geometric mean of the folds' training errors after the iterations that held-out data choose."""
        chosen = self.of(recipe).chosen
        curves = [self.done[Job(recipe, k)].curve for k in range(len(self.splits))]
        return float(geometric_mean(np.array([[value_at(c.losses, c, chosen)] for c in curves]), [1] * len(curves))[0])

    def tried(self, recipe: Recipe) -> bool:
        """Whether a candidate was trained on some fold."""
        return any(Job(recipe, k) in self.done for k in range(len(self.splits)))

    def race(self, candidates: Sequence[Recipe]) -> list[Recipe]:
        """Try candidates fold by fold, those far behind the best of all so far not to the end; the best first.

        Linear ones are compared with each other: the best of them is what others must be better than. Where none but
        these is left, as the best one failed in a later fold, those that it had left behind go on without it.
        """
        ranking, rest = self._race(candidates), [recipe for recipe in candidates if not self._fails(recipe)]
        left = any(not is_linear(recipe) and np.isfinite(self.of(recipe).lowest) for recipe in ranking)
        others = len(rest) < len(candidates) and not all(map(is_linear, rest))
        return self.race(rest) if others and not left and not self.session.interrupted.is_set() else ranking

    def _race(self, candidates: Sequence[Recipe]) -> list[Recipe]:
        alive = list(candidates)
        for k in range(len(self.splits)):
            later = len(alive) * (len(self.splits) - k - 1)
            ahead = functools.partial(self._next_fold, alive, k)
            self.run([Job(recipe, k) for recipe in alive], later, ahead)
            self._repeat_stuck(alive, later, ahead)
            if self.session.interrupted.is_set():
                break
            tried = {job.recipe for job in self.done}
            errors = {r: np.inf if self._fails(r) else self.of(r, range(k + 1)).lowest for r in tried}
            ranking = sorted((recipe for recipe in alive if not is_linear(recipe)), key=errors.__getitem__)
            best = [recipe for recipe in ranking[:GO_ON] if k == 0 and np.isfinite(errors[recipe])]
            alive = [recipe for recipe in alive if recipe in best or not _hopeless(recipe, errors, k)]
        return sorted(alive, key=lambda recipe: self.of(recipe).lowest)

    def _fails(self, recipe: Recipe) -> bool:
        """Whether a candidate diverges, or runs away, in a fold that it was tried on."""
        folds = [k for k in range(len(self.splits)) if Job(recipe, k) in self.done]
        return not all(np.isfinite(self.of(recipe, [k]).lowest) for k in folds)

    def _next_fold(self, alive: Sequence[Recipe], k: int) -> Job | None:
        """The job of a later fold that will most likely be needed: that of the best candidate in this one, or of one
        that is not done with it where no other is left."""
        errors = {r: self.of(r, range(k + 1)).lowest for r in alive if Job(r, k) in self.done}
        ended = [recipe for recipe in sorted(errors, key=errors.__getitem__) if np.isfinite(errors[recipe])]
        likely = [*ended, *(recipe for recipe in alive if recipe not in errors)]
        jobs = (Job(recipe, fold) for fold in range(k + 1, len(self.splits)) for recipe in likely)
        return next((job for job in jobs if job not in self.done and job not in self._begun), None)

    def _repeat_stuck(self, candidates: Sequence[Recipe], later: int, ahead: Callable[[], Job | None]) -> None:
        """Once more, from another start, what ended in a bad minimum: its training error is far above other folds'."""
        stuck = [job for recipe in candidates if not has_one_start(recipe) for job in self._stuck(recipe)]
        again = {job: dataclasses.replace(job, variant=1) for job in stuck}
        self.run(list(again.values()), later, ahead)
        for job, other in again.items():
            if other in self.done and self.done[other].training_error < self.done[job].training_error:
                self.done[job] = self.done[other]

    def _stuck(self, recipe: Recipe) -> list[Job]:
        jobs = [job for k in range(len(self.splits)) if (job := Job(recipe, k)) in self.done]
        errors = [self.done[job].training_error for job in jobs]
        limit = STUCK * max(min(errors, default=0.0), NEGLIGIBLE)
        again = [dataclasses.replace(job, variant=1) not in self.done for job in jobs]
        return [job for job, error, new in zip(jobs, errors, again, strict=True) if new and not error <= limit]

    def problem(self, job: Job) -> Problem:
        """The problem that a job solves."""
        first, number = self.task.problem, 0 if job.fold is None else job.fold + 1
        split = first.split if job.fold is None else self.splits[job.fold]
        problem = self.task.start(job.recipe, split, first.initial_model.scaling, (number, job.variant))
        return dataclasses.replace(
            problem, last_step=job.steps, last_loss=job.loss, further=job.further, trial=job.fold is not None
        )

    def model(self, job: Job) -> Model:
        """The model of a finished job."""
        model = self.done[job].model
        assert model is not None
        return model

    def spread(self, recipe: Recipe) -> float:
        """How far the models of a candidate's folds lie apart with other inputs; 0 where there is one at most."""
        folds = [self.done[job] for k in range(len(self.splits)) if (job := Job(recipe, k)) in self.done]
        models = [trial.model for trial in folds if trial.model is not None]
        return self.panel.compare(models).spread if len(models) > 1 else 0.0

    def runs_away(self, job: Job) -> bool:
        """Whether the model of a finished job must not, but does run away with longer inputs; found out once."""
        model = self.done[job].model
        if not self.must_last or model is None:
            return False
        if model not in self._lasting:
            self._lasting[model] = lasts(model, self.task.problem.split.train)
        return not self._lasting[model]

    def own_error(self, job: Job) -> float:
        """The error of a finished job on all training records, simulated like new ones; computed once."""
        if job not in self._own_errors:
            self._own_errors[job] = recipe_score(self.model(job), self.task.problem.split.train, job.recipe)
        return self._own_errors[job]

    def _collect(self, running: dict[Future[Trial | None], Job], ahead: Callable[[], Job | None]) -> None:
        """Wait for jobs, tell how it goes, and keep what is finished."""
        saved = told = time.monotonic()
        left = set(running)
        while left:
            finished, left = wait(left, timeout=SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED)
            for future in finished:
                trial, job = future.result(), running[future]
                del self._begun[job]
                if trial is not None:
                    self.done[job] = self._trained[job] = trial
                    self.session.report(self.progress.update(job, trial, self.done))
                    told = time.monotonic()
            while left and self._is_idle() and (next_job := ahead()) is not None:
                self._begin(next_job)
            if left and self.done and time.monotonic() - told > SILENCE:
                job = next(running[future] for future in running if future in left)
                self.session.report(self.progress.update(job, next(reversed(self.done.values())), self.done))
                told = time.monotonic()
            if time.monotonic() - saved > 2.0:
                self._save()
                saved = time.monotonic()

    def _is_idle(self) -> bool:
        """Whether a core has nothing to do."""
        return sum(not future.done() for future in self._begun.values()) < self._cores

    def _do(self, job: Job) -> Trial | None:
        """One job; None after an interruption."""
        stored = self._stored.get(job_key(job))
        if stored is not None:
            if not stored.arrays:
                return Trial(stored.curve, None)
            problem = self.problem(job)
            return Trial(stored.curve, problem.model_with(fill_arrays(problem.first_weights, stored.arrays)))
        if self._is_over():
            return None
        if self._workers is not None and not self._alone:
            return self._do_there(self._workers, job)
        began = time.perf_counter()
        try:
            problem = self.problem(job)
            run = self._train(problem, job)
        except DataError as error:
            if job.recipe == self.task.problem.recipe and job.fold is not None:
                raise cannot_train(job, len(self.splits), error) from None
            return failed(began)
        return None if run is None else finished(problem, run, began)

    def _do_there(self, workers: LocalWorkers, job: Job) -> Trial | None:
        """One job in a process of its own; here where that dies, as one may for lack of memory."""
        begin = None if job.begin is None else self.done[Job(job.recipe, job.begin)]
        try:
            future = workers.submit(_work, job, begin)
        except RuntimeError:  # another one has died meanwhile
            self._end_processes()
            return self._do(job)
        while not wait([future], timeout=SECONDS_BETWEEN_LOOKS).done:
            if self._is_over():
                return None
        if not isinstance(future.exception(), BrokenExecutor):
            return future.result()
        self._end_processes()
        return self._do(job)

    def _train(self, problem: Problem, job: Job) -> RunState | None:
        """Train to the end; None after an interruption."""
        step, run = trainer_of(problem).step, self.session.begin(problem, self._start(problem, job))
        if problem.stop == 0:
            return dataclasses.replace(run, status=Status.COMPLETED)
        while run.status == Status.RUNNING:
            if self._is_over():
                return None
            run = step(problem, run)
            self.progress.iterations[job] = run.step
        return run

    def _start(self, problem: Problem, job: Job) -> StateSpace | None:
        """The weights that a job begins with; None for those of its problem."""
        start = problem.recipe.start
        if job.begin is not None:
            return self.model(Job(job.recipe, job.begin)).state_space
        if isinstance(start, RandomDynamics):
            return self._best_start(problem, start.count)
        if isinstance(start, FromLinear) and start.stretches:
            shortest = problem.recipe.structure.estimated_samples()
            return join_stretches(full_error(problem), problem.first_weights, shortest, self._is_over)
        return None

    def _is_over(self) -> bool:
        """Whether nobody waits for jobs any more."""
        return self._closed or self.session.interrupted.is_set()

    def _best_start(self, problem: Problem, count: int) -> StateSpace:
        """Of several random starts the one with the lowest error after some iterations, as it is then."""
        error, starts = full_error(problem), self.task.random_starts(problem, count)
        x0 = np.zeros((len(problem.split.train), starts[0].nx))
        points = [error.begin(start, x0) for start in starts]
        for done in range(SCREENED[1]):
            if done == SCREENED[0]:
                points = sorted(points, key=lambda point: point.cost)[: (count + 1) // 2]
            points = [p if p.converged else iterate(*error.at(p), error.decay) for p in points]
            if self._is_over():
                break
        return error.model(min(points, key=lambda point: point.cost))

    def _save(self) -> None:
        if self.session.folder is not None:
            kept = {job_key(job): trial.stored() for job, trial in self._trained.items()}
            save_trials(self.session.folder, self.task.problem, {**self._stored, **kept})


def _brevity(job: Job) -> tuple[bool, ...]:
    """Jobs that take long come first: then no core waits for the last one."""
    structure = job.recipe.structure
    return is_linear(job.recipe), not isinstance(job.recipe.start, RandomDynamics), not structure.nonlinear_g


def _hopeless(recipe: Recipe, errors: Mapping[Recipe, float], fold: int) -> bool:
    """Whether a candidate is far behind the best one after a fold; a linear one, behind the best linear one."""
    best = min((error for other, error in errors.items() if is_linear(other) or not is_linear(recipe)), default=np.inf)
    factor = HOPELESS[min(fold, len(HOPELESS) - 1)]
    return not errors.get(recipe, np.inf) <= factor * max(best, NEGLIGIBLE)


# The trials of a worker process; set once, when it begins.
_own: list[Trials] = []


def _begin_worker(task: Task) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that started this one
    threadpool_limits(1, user_api="blas")
    _own.append(Trials(task, Session(None, lambda update: None, threading.Event())))


def _work(job: Job, begin: Trial | None) -> Trial | None:
    trials = _own[0]
    if begin is not None:
        trials.done[Job(job.recipe, job.begin)] = begin
    return trials._do(job)
