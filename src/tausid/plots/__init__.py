"""Figures of result objects; each function returns a matplotlib figure, and `save_figure` writes one."""

from tausid.plots._band import plot_band as plot_band
from tausid.plots._comparison import plot_comparison as plot_comparison
from tausid.plots._comparison import plot_simulation as plot_simulation
from tausid.plots._linear import plot_bla as plot_bla
from tausid.plots._record import plot_record as plot_record
from tausid.plots._residuals import plot_residuals as plot_residuals
from tausid.plots._residuals import plot_states as plot_states
from tausid.plots._scaling import plot_time_scaling as plot_time_scaling
from tausid.plots._study import plot_study_boxes as plot_study_boxes
from tausid.plots._style import check_picture as check_picture
from tausid.plots._style import figure_bytes as figure_bytes
from tausid.plots._style import save_figure as save_figure
from tausid.plots._tau import plot_tau as plot_tau
from tausid.plots._training import plot_history as plot_history
from tausid.plots._training import plot_tau_path as plot_tau_path
