import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

import kernelgrad
from command_line import CLASSES, NUMBERS, TABLE, write_csv
from kernelgrad import set_num_threads
from kernelgrad.cli import main
from kernelgrad.validation import bytes_of

os.environ.setdefault("MPLBACKEND", "Agg")
sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks, experiments and fuzz

# a run in the background begins with the signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)

# processes of pytest-xdist share the cores; tests of threads ask for their own number
if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    share = max(1, (os.cpu_count() or 1) // workers)
    os.environ.setdefault("KERNELGRAD_NUM_THREADS", str(share))

DATA = Path(os.environ.get("KERNELGRAD_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread_of_blas():
    # References on tiny matrices wait for threads of BLAS where other programs run
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def _default_threads():
    yield
    set_num_threads(None)


@pytest.fixture
def tiny_limits(monkeypatch):
    """Allow limits that are too small for any rows, which then stay where they are."""
    monkeypatch.setitem(bytes_of.__kwdefaults__, "least", 1.0)


@pytest.fixture
def cli(capsys):
    """Run the command line in this process; return code, stdout and stderr."""

    def run(*args):
        capsys.readouterr()
        code = main([str(a) for a in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def ok(cli):
    """Run a command with --json that must succeed; return the object."""

    def run(*args):
        code, out, err = cli(*args, "--json")
        assert code == 0, out + err
        return json.loads(out)

    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("data") / "data.csv", TABLE)


@pytest.fixture(scope="module")
def models(tmp_path_factory, data):
    """Files of a classifier, a regressor and a classifier without probabilities."""
    folder = tmp_path_factory.mktemp("models")
    for name, arguments in (
        ("classifier", (*CLASSES, "--loss", "auto")),
        ("regressor", (*NUMBERS, "--loss", "auto")),
        ("hinge", (*CLASSES, "--loss", "hinge")),
    ):
        assert main(["fit", str(data), "--model", str(folder / name), *arguments]) == 0
    bare = kernelgrad.load(folder / "hinge")
    fitted = bare._fitted  # files from before there was any calibration have none
    bare._fitted = replace(fitted, model=replace(fitted.model, calibration=None))
    bare.save(folder / "hinge")
    return folder
