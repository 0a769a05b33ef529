"""Callbacks: events of a fit come in; progress, files or its end go out."""

from kernelgrad.callbacks.base import (
    FOREVER,
    SILENT,
    Callback,
    Deadline,
    FitEvent,
    Progress,
    TimeIsUp,
)
from kernelgrad.callbacks.checkpoint import Checkpoint
from kernelgrad.callbacks.lists import Aside, CallbackList, make_callbacks
from kernelgrad.callbacks.progress import ProgressBar, ProgressLog

__all__ = [
    "FOREVER", "SILENT", "Aside", "Callback", "CallbackList", "Checkpoint", "Deadline",
    "FitEvent", "Progress", "ProgressBar", "ProgressLog", "TimeIsUp",
    "make_callbacks",
]  # fmt: skip
