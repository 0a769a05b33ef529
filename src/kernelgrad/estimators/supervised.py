"""What estimators of targets add: the penalty, and rows that are held out or scored."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from kernelgrad.estimators.base import BaseRowsEstimator
from kernelgrad.estimators.plan import Choice, Parts, Plan
from kernelgrad.params import anything, boolean, integer, parameters, real
from kernelgrad.training_rows import TrainingRows
from kernelgrad.validation import check_real


@parameters
class BaseSupervisedEstimator(BaseRowsEstimator):
    """Held-out rows, the cost C and warm starts of classifiers and regressors."""

    alpha: Any = anything(default=1e-6)
    C: float | None = real(default=None, low=0, low_open=True, words=(None,))
    tol: float = real(default=1e-4, low=0)
    early_stopping: bool = boolean(default=False)
    validation_fraction: float = real(default=0.1, low=0, high=1, low_open=True, high_open=True)
    n_iter_no_change: int = integer(default=10, low=1)
    fit_intercept: bool = boolean(default=True)
    warm_start: bool = boolean(default=False)

    _tells_alpha = True

    def _check_parameters(self) -> Parts:
        self._check_alpha()
        default = type(self).__dataclass_fields__["alpha"].default
        given = type(self.alpha) is not type(default) or self.alpha != default
        if self.C is not None and given:
            raise ValueError(
                f"C={self.C!r} and alpha={self.alpha!r} are two ways to say one thing; leave "
                "one of them out."
            )
        return super()._check_parameters()

    def _check_alpha(self) -> None:
        check_real(self.alpha, "alpha", low=0)

    @abstractmethod
    def _given_alpha(self) -> float:
        """Return the weight of the penalty where C is None."""

    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        if self.C is None:
            return self._given_alpha()
        if stream:
            raise ValueError("C needs the number of all rows; give alpha for partial_fit.")
        total = rows.total_weight
        if total is None:
            raise ValueError(
                "C needs the sum of all weights, which a source with weights or class weights "
                "does not tell before it is read; give alpha instead."
            )
        return 1.0 / (float(self.C) * total)

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        if self.early_stopping and rows.apart is None:
            rows = rows.hold_out(self.validation_fraction, self._seed)
        return super()._plan(parts, rows, chosen, warm=warm)
