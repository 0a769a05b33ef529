"""Doubly stochastic gradients: Dai, Xie, He, Liang, Raj, Balcan and Song, NeurIPS 2014.

The paper takes the gradient of a kernel machine at a random row and at a random feature
(Algorithms 1 and 2: training and prediction draw the same features again from their seeds).
Claims: the last iterate converges at the rate 1/t in the function and in its norm (Theorem 4),
the excess risk at 1/sqrt(t) (Theorem 5); a solution of accuracy eps takes O(1/eps) random
features and no memory for them (Table 2); NORMA and SDCA with full kernels are no more accurate
(Figures 4 and 6), and errors of neural networks are matched on millions of digits and molecules
(Figure 7). Algorithms 1 and 2 are :class:`kernelgrad.solvers.DSG`, with the paper's parameters
from :meth:`~kernelgrad.solvers.DSG.paper`; :mod:`~kernelgrad.papers.dsg.rivals` has NORMA, SDCA
and SBMD. ``python -m experiments run dsg.figure4_2`` and the experiments beside it check each
claim; ``docs/reproduction/dsg.md`` has the verdicts.
"""

from kernelgrad.solvers.dsg import DSG

__all__ = ["DSG"]
