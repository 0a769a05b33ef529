"""The version, for all modules, and those of what a fit depends on."""

__version__ = "0.3.0.dev0"


def show_versions() -> None:
    """Print the versions of kernelgrad, its dependencies and the system, for bug reports.

    What scikit-learn says of the system follows, with every library of BLAS or OpenMP.
    """
    from importlib.metadata import distributions

    import scipy.linalg  # noqa: F401 - loads SciPy's BLAS, so that it is listed
    import sklearn

    from kernelgrad import get_num_threads

    print(f"kernelgrad: {__version__}\nthreads: {get_num_threads()}")
    for each in distributions():
        if each.name in ("numba", "pyarrow", "torch"):
            print(f"{each.name}: {each.version}")
    sklearn.show_versions()
