"""S3GD: references from a graph of anchors (Mu et al. 2015, Algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelgrad.files.records import Record, anything
from kernelgrad.linear.base import LinearState
from kernelgrad.linear.stochastic import StepRound, StochasticSolver
from kernelgrad.papers.s3gd.anchors import AnchorGraph, build_graph
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers.contract import Problem, transient
from kernelgrad.types import Float64Array
from kernelgrad.validation import check_real

_INNER = 20  # steps between renewals of references from anchors (Section 4.3)


@dataclass(kw_only=True)
class S3GDState(LinearState):
    # kept from fit to fit on the same rows, so that a path of penalties builds it once
    graph: AnchorGraph | None = transient(released=False)

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        for name in ("alpha", "switched", "objective"):  # files of 0.1 and 0.2
            record.take(name, anything, None)
        return {}


@parameters
class S3GD(StochasticSolver[S3GDState]):
    r"""Semi-stochastic gradients with references from a graph of anchors.

    .. math:: g = \frac{1}{p} \sum_{k \in I} \bigl(l'(y_k, u_k) - h_k\bigr) x_k + \nabla H,
              \qquad h_i = \sum_z \gamma_z(x_i)\, l'(y_i, \tilde W^T z)

    Anchors z are the rows nearest to the centres of k-means; weights ``gamma`` are Gaussian
    over the nearest anchors of a row. ``grad H = sum_i p_i h_i x_i`` costs one product with
    m anchors instead of all rows (Equation (22)) and is renewed every `inner_steps` steps.

    The mean of ``h_i x_i`` is exactly ``grad H``, so that g is unbiased; the noise of ``l' -
    h`` does not vanish at the minimum: ``"svrg"`` comes closer. The graph takes two products of
    all rows with m points: it pays off if a fit needs many passes or is repeated on the same
    rows (``warm_start``, other penalties).

    Parameters
    ----------
    n_anchors : int >= 1, default=100
        m, the paper's (Section 4.3).
    n_neighbors : int >= 1, default=10
        Anchors of a row.
    batch_size : int >= 1, default=10
        p, the paper's.
    inner_steps : int >= 1 or "auto", default="auto"
        Steps between renewals of H. ``"auto"`` is the paper's 20, or more on sparse rows: as
        many as make a renewal cost no more than the steps.
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` is ``1 / (2 L(p))`` with the expected smoothness L(p) of a mini-batch.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop, a multiple of `inner_steps`; "auto" is one pass
        over the rows, rounded up to whole inner loops.
    """

    name: ClassVar[str] = "s3gd"
    removed = frozenset({"switch"})
    state_class: ClassVar[type[Any]] = S3GDState
    tag: ClassVar[int] = 0x733367

    n_anchors: int = integer(default=100, low=1)
    n_neighbors: int = integer(default=10, low=1)
    batch_size: int = integer(default=10, low=1)
    inner_steps: int | str = integer(default="auto", low=1, words=("auto",))
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    @classmethod
    def paper(
        cls, *, eta: float, lam: float = 1e-3, balanced: bool = False, **parameters: Any
    ) -> dict[str, Any]:
        """Return the parameters of a linear estimator that make it the paper's Algorithm 1.

        Constant steps on the last iterate, references from anchors throughout, and no
        intercept: the paper appends a column of ones, whose coefficient has a penalty too. Of
        Algorithm 2 k-means sees at most ``max(20 m, 1000)`` rows, in ten iterations, and
        epsilon is 1e-4 times the median distance::

            LinearClassifier("logistic", **S3GD.paper(eta=1.0))

        The paper's squared hinge has a factor 1/2 that the loss here has not: give ``2 * lam``
        and ``eta / 2``.

        Parameters
        ----------
        eta : float > 0
            The constant step; the paper takes the largest of 0.1, 1, 5 and 10 that is stable.
        lam : float >= 0, default=1e-3
            lambda of ``lambda |w|^2`` (Section 4.3): ``alpha = 2 lam``.
        balanced : bool, default=False
            Weights ``1 / |Y+|`` and ``1 / |Y-|`` of Equation (46). They sum to 2, those of
            ``class_weight="balanced"`` to 1, so that ``alpha = lam`` and steps are ``2 eta``.
            Rows are drawn by these weights.
        **parameters
            Others of the solver; by default the paper's ``m = 100``, ``p = 10`` and ``k_in =
            20``. It does not tell k, which is 10.
        """
        check_real(eta, "eta", low=0, low_open=True)
        check_real(lam, "lam", low=0)
        scale = 2.0 if balanced else 1.0
        fixed = {"inner_steps": _INNER, "step_size": scale * eta}
        solver = cls(**(fixed | parameters))
        solver.check()
        weights: dict[str, Any] = {"class_weight": "balanced"} if balanced else {}
        return weights | {
            "solver": solver,
            "penalty": "l2",
            "alpha": 2.0 * lam / scale,
            "fit_intercept": False,
            "tol": 0.0,
        }

    def _n_steps(self, r: StepRound[S3GDState]) -> int:
        if r.state.graph is None:
            r.state.graph = build_graph(r.problem, r.data, self.n_anchors, self.n_neighbors)
        T, inner = super()._n_steps(r), self._inner(r)
        if self.round_size == "auto":
            return -(-T // inner) * inner
        return max(1, T // inner) * inner

    def _reference(self, r: StepRound[S3GDState], W: Float64Array, b: Float64Array) -> Any:
        assert r.state.graph is not None
        return r.state.graph.references(self._inner(r), r.data)

    def _inner(self, r: StepRound[S3GDState]) -> int:
        if self.inner_steps != "auto":
            return int(self.inner_steps)
        assert r.state.graph is not None
        renewal = float(r.state.graph.product.size)
        step = 2.0 * self.batch_size * max(1.0, r.data.row_size) * len(r.data.numbers)
        return max(_INNER, int(renewal / step)) if r.data.is_sparse else _INNER
