"""Import, small fit and prediction in a process of its own; prints seconds as JSON."""

from __future__ import annotations

import json
import time

start = time.perf_counter()
import kernelgrad  # noqa: E402

imported = time.perf_counter()
estimator = kernelgrad.KernelRegressor  # loads the library
import numpy as np  # noqa: E402

loaded = time.perf_counter()
X = np.random.default_rng(0).standard_normal((1000, 4))
model = estimator(max_iter=3, random_state=0).fit(X, X[:, 0])
fitted = time.perf_counter()
model.predict(X)
done = time.perf_counter()

import importlib  # noqa: E402
import pkgutil  # noqa: E402

import kernelgrad.compute  # noqa: E402

dispatchers = {
    id(value): value
    for info in pkgutil.iter_modules(kernelgrad.compute.__path__)
    for module in [importlib.import_module(f"kernelgrad.compute.{info.name}")]
    for value in vars(module).values()
    if hasattr(value, "stats") and hasattr(value, "signatures")
}
print(
    json.dumps(
        {
            "import kernelgrad": imported - start,
            "load": loaded - imported,
            "fit": fitted - loaded,
            "predict": done - fitted,
            "total": done - start,
            "hits": sum(sum(d.stats.cache_hits.values()) for d in dispatchers.values()),
            "misses": sum(sum(d.stats.cache_misses.values()) for d in dispatchers.values()),
        }
    )
)
