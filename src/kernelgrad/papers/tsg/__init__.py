"""Triply stochastic gradients: Geng, Gu, Li, Shi, Zheng and Huang, IJCAI 2019.

The objective of a semi-supervised SVM has a loss of labelled rows and one of rows without a
label (Table 2). The paper's gradient draws a labelled row, an unlabelled row and a random
feature (Algorithms 1 and 2).
Claims: the squared distance to the function that uses all features is O(1/sqrt(T)) after T
steps of T^(-3/4) (Theorem 1), and the squared gradient norm falls with T although the objective
is not convex (Theorem 2); it is faster than BGS3VM, FRS3VM, CCCP and S3VMLight (Figure 2) at
similar test errors, less than those of FRS3VM (Figure 3). The preset is :meth:`TSG.paper`;
:mod:`~kernelgrad.papers.tsg.rivals` has the four rivals.
"""

from kernelgrad.papers.tsg.tsg import TSG

__all__ = ["TSG"]
