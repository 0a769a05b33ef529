"""Old coordinates used again: Li and Póczos, UAI 2016.

Doubly stochastic gradients add random features in every step. The paper steps on features that
exist already: uniformly drawn ones in turn with new ones (UDSG, Algorithm 3), or the one whose
expected descent is at least that of a new one (CDSG, Algorithm 4 with Equation 9).
Claims: both keep the rate 1/t (Theorems 4 and 14); at the same time the objective of CDSG is
below the others' (Figures 1 and 2), that of UDSG mostly below that of DSG (Figure 1); so are
test errors when CDSG has converged (Table 5), and in the end those of all three are alike
(Table 6); all come near LIBSVM's training error (Table 3). The presets are :meth:`UDSG.paper`
and :meth:`CDSG.paper`; rivals are DSG itself, and SVRG on random features of the room
``linear``.
"""

from kernelgrad.papers.cdsg.cdsg import CDSG, UDSG

__all__ = ["CDSG", "UDSG"]
