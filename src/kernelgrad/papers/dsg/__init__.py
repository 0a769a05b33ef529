"""Doubly stochastic gradients: Dai, Xie, He, Liang, Raj, Balcan and Song, NeurIPS 2014.

The paper takes the gradient of a kernel machine at a random row and at a random feature
(Algorithms 1 and 2: training and prediction draw the same features again from their seeds).
Claims: ``(f_t(x) - f(x))^2`` falls as 1/t for each x (Theorems 4 and 5), the excess risk as
1/sqrt(t) (Theorem 6); accuracy eps takes O(1/eps) memory, without the columns (Table 2); errors
are those of NORMA with the full kernel on synthetic data and Adult, less on MNIST, more on
forest, where fewer features do worse (Figures 4 to 6), and those of neural networks on images
and molecules (Figure 7). :mod:`.algorithms` has Algorithms 1 and 2 as printed,
:meth:`~kernelgrad.solvers.DSG.paper` presets the solver, :mod:`.rivals` has NORMA, SDCA and
SBMD.
"""

from kernelgrad.papers.dsg.algorithms import gaussian_features, predict, train
from kernelgrad.solvers.dsg import DSG

__all__ = ["DSG", "gaussian_features", "predict", "train"]
