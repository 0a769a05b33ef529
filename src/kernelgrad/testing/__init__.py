"""Checks of parts: an object comes in; a violation is an AssertionError."""

from kernelgrad.testing.estimator import (
    check_checkpoints,
    check_estimator_contract,
    check_relations,
)
from kernelgrad.testing.parts import (
    check_kernel,
    check_loss,
    check_parameters,
    check_unlabelled_loss,
)
from kernelgrad.testing.solver import check_solver

__all__ = [
    "check_checkpoints", "check_estimator_contract", "check_kernel", "check_loss",
    "check_parameters", "check_relations", "check_solver", "check_unlabelled_loss",
]  # fmt: skip
