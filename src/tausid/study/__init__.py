"""Studies: many trainings, nothing lost. What to run (spec), where (executors), what came out (store, results)."""

from tausid.results.study_results import StudyResults, read_results
from tausid.study.coordinator import StudyUpdate, run_study, study_counts
from tausid.study.spec import RunPlan, StudySpec, parse_spec, read_spec

__all__ = [
    "RunPlan", "StudyResults", "StudySpec", "StudyUpdate", "parse_spec", "read_results", "read_spec", "run_study",
    "study_counts",
]  # fmt: skip
