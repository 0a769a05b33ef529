"""Clusters of dask: collections come in, rows are held and predicted on the workers."""

from kernelgrad.cluster.engine import DaskEngine, DaskTeam, current_engine
from kernelgrad.cluster.source import DaskSource, HeldRows, mapped

__all__ = [
    "DaskEngine", "DaskSource", "DaskTeam", "HeldRows", "current_engine", "mapped",
]  # fmt: skip
