"""The errors of this package; messages name the value, the cause and the remedy."""

from __future__ import annotations


class KernelGradError(Exception):
    """Base class of the errors of kernelgrad."""


class DataError(KernelGradError, ValueError):
    """The data are invalid; the message names the place, the value and the remedy."""


class ModelFileError(KernelGradError, ValueError):
    """A model file is foreign, truncated, altered, or from an unknown version."""


class NewerFileError(ModelFileError):
    """A file is of a later version than this one reads."""


class CapabilityError(KernelGradError, ValueError):
    """A solver needs something that the loss, the kernel or the data cannot give."""
