"""The errors of this package; messages name the value, the cause and the remedy."""


class KernelGradError(Exception):
    """Base class of the errors of kernelgrad."""


class DataError(KernelGradError, ValueError):
    """The data are invalid; the message names the place, the value and the remedy."""


class ModelFileError(KernelGradError, ValueError):
    """A model file is foreign, truncated, altered, or from an unknown version."""


class NewerFileError(ModelFileError):
    """A file was written by a later version, whose format this one cannot read."""


class UnseenValuesWarning(UserWarning):
    """Rows to predict have gaps or categories that are new to the model."""


class CapabilityError(KernelGradError, ValueError):
    """A solver needs a capability that the loss, the kernel or the data do not have."""
