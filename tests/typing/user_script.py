"""What type checkers tell users: mypy reads this with the package, pyright in a slow test."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

from kernelgrad import (
    KernelClassifier,
    KernelDensityRatio,
    KernelGaussianProcessRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    LinearClassifier,
    LinearRegressor,
    RandomFeatures,
    SemiSupervisedKernelClassifier,
    load,
)

Floats = npt.NDArray[np.float64]
X, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])

classifier = KernelClassifier("hinge", C=1.0, max_iter=5)
assert_type(classifier.fit(X, y, X_val=X, y_val=y), KernelClassifier)
assert_type(classifier.partial_fit(X, y, classes=[0, 1]), KernelClassifier)
assert_type(classifier.predict(X), npt.NDArray[Any])
assert_type(classifier.predict_proba(X), Floats)
assert_type(classifier.decision_function(X), Floats)
assert_type(classifier.score(X, y), float)
assert_type(classifier.classes_, npt.NDArray[Any])
assert_type(classifier.history_["validation_score"], list[float | None])
assert_type(classifier.history_["solver"], str)
assert_type(classifier.history_.get("search"), list[dict[str, Any]] | None)
assert_type(classifier.n_iter_, int)
assert_type(classifier.alpha_, float)
assert_type(classifier.best_score_, float | None)
assert_type(classifier.feature_importances_, Floats)
assert_type(classifier.model_info(), dict[str, Any])
assert_type(SemiSupervisedKernelClassifier().fit(X, y), SemiSupervisedKernelClassifier)

assert_type(KernelRegressor().fit(X, y).predict(X), Floats)
assert_type(LinearRegressor().fit(X, y).n_outputs_, int)
assert_type(LinearClassifier().fit(X, y).coef_, Floats)
assert_type(KernelNoveltyDetector().fit(X).offset_, float)
assert_type(KernelNoveltyDetector().fit(X).score_samples(X), Floats)
assert_type(KernelDensityRatio().fit(X, denominator=X).predict(X), Floats)
assert_type(RandomFeatures().fit_transform(X), npt.NDArray[np.float32])
assert_type(RandomFeatures().fit(X).transform(X), npt.NDArray[np.float32])

KernelRegressor("huber", lambda A, B: A @ B.T, metric=[1.0, 2.0], callbacks=[])
KernelClassifier(class_weight={0: 1.0}, random_state=None, memory_limit="2 GB")
assert_type(KernelRegressor().predict([{"a": 1.0}]), Floats)
KernelClassifier(multi_class="ovr")  # type: ignore[arg-type]
KernelClassifier(standardize="yes")  # type: ignore[arg-type]
KernelClassifier(effort="slow")  # type: ignore[arg-type]
KernelClassifier(solver=3)  # type: ignore[arg-type]
KernelClassifier().fit(3.5, y)  # type: ignore[arg-type]

process = KernelGaussianProcessRegressor().fit(X, y)
assert_type(process.predict(X), Floats)
assert_type(process.predict(X, return_std=True), tuple[Floats, Floats])
assert_type(process.predict(X, return_cov=True), tuple[Floats, Floats])

classifier.save("model.kgm")
loaded = load("model.kgm")
assert_type(loaded.predict(X), npt.NDArray[Any])
assert_type(loaded.history_["seconds"], list[float])
assert isinstance(loaded, KernelClassifier)
assert_type(loaded.predict_proba(X), Floats)
