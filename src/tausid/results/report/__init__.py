"""One self-contained page on a run or a study: no network, opens from disk, prints."""

from tausid.results.report._page import write_report as write_report
from tausid.results.report._run import run_page as run_page
from tausid.results.report._study import study_page as study_page
