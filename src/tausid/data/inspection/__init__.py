"""A first look at data: channels, clock, gaps, limits and excitation, and what to do about them."""

from tausid.data.inspection._look import inspect_channels, look
from tausid.data.inspection._reports import ChannelReport, ClockReport, Inspection

__all__ = ["ChannelReport", "ClockReport", "Inspection", "inspect_channels", "look"]
