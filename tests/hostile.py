"""A target of the attack that does what must be found; imported by processes of its own."""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.target import Case, Target

INPUTS = b"fine clear crash change unnamed unnamed hang memory fine".split()


class Hostile(Target):
    """Does as the input says."""

    name = "hostile"
    clear = (KeyError,)
    seconds = 1.0

    def seeds(self):
        return {"seed": b"fine"}

    def case(self, seed, execution):
        return Case("seed", INPUTS[execution], False)

    def use(self, path):
        what = path.read_bytes()
        if what in (b"clear", b"unnamed"):
            raise KeyError(path if what == b"clear" else "a file")
        if what == b"crash":
            os.abort()
        if what == b"hang":
            sum(range(10**10))
        if what == b"memory":
            np.ones(2**28)
        return what
