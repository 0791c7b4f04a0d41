"""Figures of result objects; each function returns a matplotlib figure, and `save_figure` writes one."""

from tausid.results.plots._linear import plot_bla as plot_bla
from tausid.results.plots._linear import plot_operating_points as plot_operating_points
from tausid.results.plots._linear import plot_order as plot_order
from tausid.results.plots._record import plot_record as plot_record
from tausid.results.plots._record import plot_time_scaling as plot_time_scaling
from tausid.results.plots._residuals import plot_residuals as plot_residuals
from tausid.results.plots._simulation import plot_band as plot_band
from tausid.results.plots._simulation import plot_comparison as plot_comparison
from tausid.results.plots._simulation import plot_simulation as plot_simulation
from tausid.results.plots._simulation import plot_states as plot_states
from tausid.results.plots._study import plot_study_boxes as plot_study_boxes
from tausid.results.plots._style import check_picture as check_picture
from tausid.results.plots._style import figure_bytes as figure_bytes
from tausid.results.plots._style import save_figure as save_figure
from tausid.results.plots._tau import plot_tau as plot_tau
from tausid.results.plots._training import plot_history as plot_history
from tausid.results.plots._training import plot_tau_path as plot_tau_path
