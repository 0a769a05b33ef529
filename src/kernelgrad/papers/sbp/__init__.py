"""The Stochastic Batch Perceptron: Cotter, Shalev-Shwartz and Srebro, ICML 2012.

The paper maximises the smallest response that slack of a given total can lift (the slack
constrained SVM, Section 2): a step adds a row drawn from the minimax optimal distribution, the
uniform one over the rows under water (Section 3, Figures 1 and 4), and updates all responses.
Claims: a scaled solution lies on the Pareto front of norm and loss (Lemma 2.1); the average
iterate is within O(sqrt(log(1/delta) / T)) of the optimum (Lemma 3.2); to an error SBP takes
fewer kernel evaluations than Pegasos and SDCA (Figure 2), by a bound less than those of dual
decomposition and SGD (Table 1), and on MNIST fewer inner products than random features (Figure
3). The preset is :meth:`StochasticBatchPerceptron.paper`; :mod:`~kernelgrad.papers.sbp.rivals`
has the rivals.
"""

from kernelgrad.papers.sbp.sbp import StochasticBatchPerceptron

__all__ = ["StochasticBatchPerceptron"]
