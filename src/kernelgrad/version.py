"""The version, for all modules, and those of what a fit depends on."""

__version__ = "0.3.0.dev0"

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "threadpoolctl", "pyarrow", "torch")


def show_versions() -> None:
    """Print the versions of kernelgrad, its dependencies and the system, for bug reports.

    A line each for Python, the system, packages (``-`` where one is not installed), the number
    of threads, and every library of BLAS or OpenMP that is loaded, with its core type.
    """
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import scipy.linalg  # noqa: F401 - loads SciPy's BLAS, so that it is listed
    from threadpoolctl import threadpool_info

    from kernelgrad import get_num_threads

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "-"

    lines = {"kernelgrad": __version__, "python": platform.python_version()}
    lines["system"] = platform.platform()
    lines |= {name: installed(name) for name in _PACKAGES}
    lines["threads"] = str(get_num_threads())
    for name, text in lines.items():
        print(f"{name}: {text}")
    for library in threadpool_info():
        core = library.get("architecture", "unknown core type")
        print(
            f"{library['internal_api']}: {library['version']}, {core}, {library['num_threads']}"
        )
