"""A process in which calls of the C library fail in turn; see test_faults.py and faults.c."""

import ctypes
import errno
import gzip
import json
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from kernelgrad import KernelRegressor, load, open_source
from kernelgrad.callbacks import Checkpoint
from kernelgrad.files.disk import ScratchFolder
from kernelgrad.solvers.block_descent.shards import Scratch

SHORT = 0
LEAST = int(sys.argv[4]) if len(sys.argv) > 4 else 0
CALLS = {
    "open": (errno.EMFILE, errno.EIO, errno.EINTR),
    "read": (errno.EIO, errno.EINTR, SHORT),
    "write": (errno.ENOSPC, errno.EIO, errno.EINTR, SHORT),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "rename": (errno.EPERM, errno.EIO, errno.ENOSYS),
    "mmap": (errno.ENOMEM,),
    "malloc": (errno.ENOMEM,),
}
KINDS = ("none", *CALLS)  # the order of faults.c
libc = ctypes.CDLL(None)
libc.faults_seen.restype = ctypes.c_long
rng = np.random.default_rng(0)
X = rng.standard_normal((100, 3))
Y = X[:, 0] + np.sin(X[:, 1])
FIT = {"solver": "dsg", "gamma": 0.5, "alpha": 1e-2, "max_iter": 3, "random_state": 0}


class Armed:
    """Lets a call fail within; `seen` is how many there were."""

    def __init__(self, call, at, error, all_later):
        self.what = KINDS.index(call), at, error, all_later
        self.seen = 0

    def __enter__(self):
        call, at, *rest = self.what
        libc.faults_arm(call, ctypes.c_long(at), *rest, ctypes.c_size_t(LEAST))

    def __exit__(self, *_):
        self.seen += libc.faults_seen()


class Save:
    """A model over another one."""

    def __init__(self, folder):
        self.path = folder / "m.kgm"
        models = [KernelRegressor(gamma=0.5, alpha=a).fit(X, Y) for a in (1e-3, 1.0)]
        self.model, self.contents = models[1], []
        for model in models:
            model.save(self.path)
            self.contents.append(self.path.read_bytes())

    def prepare(self):
        self.path.write_bytes(self.contents[0])

    def act(self, armed):
        self.late = armed.what[0] == KINDS.index("malloc")
        with armed:
            self.model.save(self.path)

    def wrong(self, done):
        if [*self.path.parent.iterdir()] != [self.path]:
            return "something is left"
        content = self.path.read_bytes()
        after = not done and self.late and content == self.contents[1]  # it was done by then
        return None if content == self.contents[done] or after else "lost"


class Load(Save):
    """A model is read."""

    def act(self, armed):
        with armed:
            self.result = load(self.path)

    def wrong(self, done):
        same = not done or np.array_equal(self.result.predict(X), self.expected)
        return None if same else "different"

    def __init__(self, folder):
        super().__init__(folder)
        self.path.write_bytes(self.contents[0])
        self.expected = load(self.path).predict(X)


class Fit:
    """A fit writes checkpoints, and goes on from them."""

    def __init__(self, folder):
        self.folder = folder
        self.expected = KernelRegressor(**FIT).fit(X, Y).predict(X)

    def prepare(self):
        for path in self.folder.iterdir():
            path.unlink()

    def fit(self, keeper):
        return KernelRegressor(**FIT, callbacks=keeper).fit(X, Y).predict(X)

    def act(self, armed):
        keeper = Checkpoint(self.folder, every=1)
        write = keeper._write

        def failing(*args):
            with armed:
                write(*args)

        keeper._write = failing
        self.result = self.fit(keeper)

    def wrong(self, done):
        if done and not np.array_equal(self.result, self.expected):
            return "different"
        resumed = self.fit(Checkpoint(self.folder, every=1, resume=True))
        return None if np.array_equal(resumed, self.expected) else "lost"


class Resume(Fit):
    """A fit goes on from a checkpoint that cannot be read, or a folder not written to."""

    def prepare(self):
        super().prepare()
        self.fit(Checkpoint(self.folder, every=1))
        max(self.folder.iterdir()).unlink()

    def act(self, armed):
        keeper = Checkpoint(self.folder, every=1, resume=True)
        begin = keeper.begin

        def failing(**identity):
            with armed:
                begin(**identity)

        keeper.begin = failing
        self.result = self.fit(keeper)


class Memory:
    """Arrays in scratch files."""

    def __init__(self, folder):
        tempfile.tempdir = str(folder)
        self.folder = folder

    def prepare(self):
        self.result = None
        for path in self.folder.iterdir():
            shutil.rmtree(path)

    def act(self, armed):
        with armed:
            home = ScratchFolder()
            arrays = Scratch(str(home.path), "0")
            for value in (X, 2 * X):
                arrays["x"] = value
            self.result = np.array(arrays["x"])

    def wrong(self, done):
        if [*self.folder.iterdir()]:
            return "something is left"
        same = not done or np.array_equal(self.result, np.float32(2 * X))
        return None if same else "different"


class Read:
    """A packed table is read."""

    def __init__(self, folder):
        self.path = folder / "rows.csv.gz"
        text = "a,b,c,y\n" + "".join(f"{a},{b},{c},{a}\n" for a, b, c in X)
        self.path.write_bytes(gzip.compress(text.encode()))

    def prepare(self):
        self.result = None

    def act(self, armed):
        with armed:
            source = open_source(self.path, target="y")
            self.result = source.read(0, len(X)).X

    def wrong(self, done):
        return None if not done or np.array_equal(self.result, X) else "different"


SCENES = {each.__name__.lower(): each for each in Save.__subclasses__() + Fit.__subclasses__()}
SCENES |= {each.__name__.lower(): each for each in (Save, Fit, Memory, Read)}
CLEAR = (OSError, MemoryError, ValueError)


def trial(scene, armed):
    """Return how it ended, and what is wrong."""
    scene.prepare()
    done, outcome = True, "done"
    try:
        scene.act(armed)
    except Exception as error:
        done, outcome = False, type(error).__name__
        # without memory, Python and OpenSSL raise what they like
        if not isinstance(error, CLEAR) and armed.what[0] != KINDS.index("malloc"):
            return repr(error), "unexpected"
    return outcome, scene.wrong(done)


def main(name, calls, most):
    """Let each call fail, or so many of them; print what came of it as JSON."""
    warnings.simplefilter("ignore")
    outcomes, findings = Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        scene = SCENES[name](Path(folder))
        for call in calls.split(","):
            counting = Armed(call, 0, errno.EIO, 0)
            trial(scene, counting)
            places = range(1, counting.seen + 1)
            if len(places) > most:
                places = sorted(rng.choice(places, most, replace=False).tolist())
            for error in CALLS[call]:
                once = error == errno.EINTR or call == "malloc"
                for all_later in (0,) if once else (0, 1):
                    for at in places:
                        what = [call, at, errno.errorcode.get(error, "short"), all_later]
                        print(*what, file=sys.stderr, flush=True)
                        outcome, wrong = trial(scene, Armed(call, at, error, all_later))
                        outcomes[f"{call} {what[2]}: {outcome}"] += 1
                        if wrong:
                            findings.append([*what, outcome, wrong])
    print(json.dumps({"outcomes": outcomes, "findings": findings}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
