"""The version, for all modules."""

__version__ = "0.1.0"
