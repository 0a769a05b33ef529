"""Stochastic gradients made stable (S3GD): Mu, Liu and Fan, 2015.

A stochastic gradient is compared with a reference whose mean over all rows is cheap to know:
derivatives at anchors, spread over the rows by a graph (Algorithms 1 and 2, Equations 13 to
22). Claims: the expected objective falls geometrically down to a constant (Theorem 3.1); SVRG
and S3GD are the most stable under large steps (Figure 2), and S3GD is the fastest on six of
nine sets (Figure 4); its gradients correlate with the exact ones more than those of SGD, SSGD
and SCV (Figure 6), whatever the number of anchors (Figure 7); renewals every 20 or 50 steps do
as well (Figure 9). The preset is :meth:`S3GD.paper`; :mod:`~kernelgrad.papers.s3gd.rivals` has
SSGD and SCV, the room ``linear`` SGD and SVRG.
"""

from kernelgrad.papers.s3gd.s3gd import S3GD

__all__ = ["S3GD"]
