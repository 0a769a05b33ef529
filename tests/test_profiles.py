"""The table of forms and profiles, against kernels as they are compiled and their slopes."""

import numpy as np
import pytest

from cases import every
from kernelgrad.kernels import (
    KERNELS,
    ArcCosine,
    ConvolutionKernel,
    DotProduct,
    Gaussian,
    Matern,
    Polynomial,
    TiledKernel,
    get_kernel,
    profiles,
)
from test_contracts import OBJECTS

EACH = [
    *(
        OBJECTS[name]() if name in OBJECTS else get_kernel(name, gamma="median")
        for name, cls in KERNELS.items()
        if issubclass(cls, TiledKernel) and not issubclass(cls, ConvolutionKernel)
    ),
    Matern(0.5, 0.3),
    Matern(2.5, 0.3),
    Polynomial(3, gamma=0.2, coef0=0.5),
    DotProduct("exponential", gamma=0.1),
    DotProduct("vovk", gamma=0.01),
    ArcCosine(0, bias=1.0),
    ArcCosine(2),
]


@every("kernel", EACH)
def test_compiled_kernels_have_the_values_of_the_table(kernel):
    X = 2.0 * np.random.default_rng(3).random((30, 5))
    X[:, 0] *= X[:, 0] > 0.5  # some zeros
    kernel = kernel.resolve(X, 0)
    E = kernel.embedded(X)
    terms = profiles.TERMS[kernel.form_code](np, E[:, None], E)
    t = terms.prod(2) if kernel.form_code in profiles.PRODUCTS else terms.sum(2)
    size = 0.5 * (E**2).sum(1)
    if isinstance(kernel, ArcCosine):
        size = np.sqrt(kernel.diag(X) / (1, 1, 3)[kernel.order])
    found = profiles.values(np, t, size[:, None], size, **kernel.finish())
    np.testing.assert_allclose(found, kernel(X, X), rtol=1e-9, atol=1e-7)
    rows = kernel.exact_rows(X)  # in float32
    atol = 1e-3 if isinstance(kernel, ArcCosine) else 1e-5  # angles are roots
    values = kernel.values(rows, rows, np.float32, compiled=True)
    far = ~np.eye(len(X), dtype=bool)  # equal rows: the root of a distance that rounds to 0
    np.testing.assert_allclose(values[far], found[far], rtol=2e-5, atol=atol)
    np.testing.assert_allclose(np.diag(values), np.diag(found), atol=1e-3)


@pytest.mark.parametrize("nu", [*profiles.MATERN, np.inf])
def test_profiles_of_squared_distances_and_their_slopes(nu):
    D = np.linspace(0.01, 9.0, 50)
    k, slope = profiles.profile(D, nu)
    kernel = Gaussian(0.5) if nu == np.inf else Matern(nu, 0.5)
    np.testing.assert_allclose(k, kernel(np.sqrt(D)[:, None], np.zeros((1, 1)))[:, 0])
    quotient = (profiles.profile(D + 1e-6, nu)[0] - profiles.profile(D - 1e-6, nu)[0]) / 2e-6
    np.testing.assert_allclose(slope, quotient, rtol=1e-6)
    k, slope = profiles.profile(np.zeros(1, np.float32), nu)
    assert (k.dtype, slope.dtype, k[0]) == (np.float32, np.float32, 1.0)
    assert np.isfinite(slope[0])
