"""What the numbers depend on besides the code."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401 - loads SciPy's BLAS, so that it is listed
import threadpoolctl

from benchmarks import FORCED_CORE_TYPE

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def load_average() -> list[float] | None:
    """Return the load averages over 1, 5 and 15 minutes, where the system tells."""
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None


def commit() -> str | None:
    """Return the commit of the checkout, with a plus where `src` has changes, or None."""
    root = Path(__file__).parents[1]
    try:
        name, changed = (
            subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (["rev-parse", "--short=8", "HEAD"], ["status", "--short", "src"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return name + "+" * bool(changed)


def describe() -> dict[str, Any]:
    import kernelgrad  # an environment of peers does without

    blas = [
        {
            "library": Path(lib["filepath"]).name,
            "version": lib["version"],
            "core_type": lib.get("architecture"),
            "threads": lib["num_threads"],
        }
        for lib in threadpoolctl.threadpool_info()
        if lib["user_api"] == "blas"
    ]
    return {
        "commit": commit(),
        "blas": blas,
        "removed_OPENBLAS_CORETYPE": FORCED_CORE_TYPE,
        "threads": kernelgrad.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "kernelgrad": kernelgrad.__version__,
            **{name: version(name) for name in PACKAGES},
        },
        "cpu": cpu_model(),
        "load_average": load_average(),
    }


def lines(environment: dict[str, Any]) -> list[str]:
    out = [f"commit {name}"] if (name := environment.get("commit")) else []
    out += [
        f"BLAS: {b['library']} {b['version']}, core type {b['core_type']}, "
        f"{b['threads']} threads"
        for b in environment["blas"]
    ]
    removed = environment["removed_OPENBLAS_CORETYPE"]
    if removed is not None:
        out.append(f"OPENBLAS_CORETYPE={removed} was set and has been removed")
    out.append(f"kernelgrad threads: {environment['threads']}")
    out.append(", ".join(f"{k} {v}" for k, v in environment["versions"].items()))
    out.append(f"CPU: {environment['cpu']}; load average {environment['load_average']}")
    return out
