"""A first look at data: channels, clock, gaps, limits and excitation, and what to do about them."""

from tausid.data.inspection._look import bad_samples, inspect_channels, look
from tausid.data.inspection._reports import ChannelReport, ClockReport, Inspection
from tausid.data.inspection._suggestions import like_time

__all__ = ["ChannelReport", "ClockReport", "Inspection", "bad_samples", "inspect_channels", "like_time", "look"]
