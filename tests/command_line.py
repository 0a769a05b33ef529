"""A table, its columns as options, and models of it, for tests of the command line."""

import numpy as np
import pandas as pd

import kernelgrad

N = 300
FAST = ("--max-iter", "6", "--seed", "0", "--quiet")
PLAIN = ("--gamma", "median", *FAST)  # nothing is searched
CLASSES = ("--target", "label", "--drop", "value,weight", *PLAIN)
NUMBERS = ("--target", "value", "--drop", "label", "--drop", "weight", *PLAIN)


rng = np.random.default_rng(0)
X = rng.normal(size=(N, 3))
VALUE = np.sin(2 * X[:, 0]) + X[:, 1]
TABLE = pd.DataFrame(X, columns=list("abc")).assign(
    value=VALUE, label=np.where(VALUE > 0, "yes", "no"), weight=np.linspace(0.5, 2.0, N)
)
SOURCE = kernelgrad.ArraySource(X)


def write_csv(path, columns):
    pd.DataFrame(columns).to_csv(path, index=False)
    return path
