"""FRS3VM: the same gradients on fixed random features (Geng et al. 2019, Section 6)."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from kernelgrad.papers.tsg.tsg import TSG
from kernelgrad.params import parameters


@parameters
class FRS3VM(TSG):
    """The same gradients on one block of random features that never changes.

    Parameters
    ----------
    block_size : int or "auto", default="auto"
        Number of frequencies of the function. ``"auto"`` is the square root of the number of
        rows.
    batch_size, step_size, theta, decay, ramp, preconditioned, decoupled, redraw,
    damping, momentum, average
        As in :class:`TSG`.
    """

    name: ClassVar[str] = "fr_s3vm"

    max_blocks: int | None = field(default=1, init=False)
    max_features: int | None = field(default=None, init=False)
