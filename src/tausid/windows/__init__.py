"""Training windows: stretches of normalized records, gathered by index and never copied ahead of time."""

from tausid.windows._layout import steps_to_next
from tausid.windows._past import at_nominal_times, fill_past, hold_missing, past_is_known
from tausid.windows._source import Windows, WindowSource

__all__ = [
    "WindowSource", "Windows", "at_nominal_times", "fill_past", "hold_missing", "past_is_known", "steps_to_next",
]  # fmt: skip
