"""The five studies of the demo."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from scipy.special import ndtri
from sklearn.calibration import CalibrationDisplay
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_digits, make_friedman1
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from kernelgrad import (
    KernelClassifier,
    KernelGaussianProcessRegressor,
    KernelRegressor,
    SemiSupervisedKernelClassifier,
    open_source,
)
from kernelgrad.compute.compiling import clock
from kernelgrad.plotting import ExplanationDisplay

from .work import SEED, Result, Study, Work, error_of, losses_of

_STYLES = [
    {"color": color, "marker": marker}
    for color, marker in (("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "^"))
]


def axes() -> Any:
    """Return axes of a figure that needs no display."""
    return Figure(figsize=(5.6, 4.2), layout="constrained").subplots()


def boosted_trees(classes: bool) -> tuple[str, Any]:
    """Return LightGBM, or scikit-learn's boosted trees where it is not installed."""
    try:
        from lightgbm import LGBMClassifier, LGBMRegressor
    except ImportError:
        cls = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        return cls.__name__, cls(random_state=SEED, categorical_features="from_dtype")
    return "LightGBM", (LGBMClassifier if classes else LGBMRegressor)(verbose=-1)


def late_payments(n: int, seed: int) -> tuple[Any, Any]:
    """Return a table of invented loans, and which of them were paid late.

    The risk is a sum of smooth functions of age and of income against amount, and of steps by
    purpose and region; two columns tell nothing.
    """
    rng = np.random.default_rng([SEED, seed])
    purposes = {"car": -0.3, "house": -1.0, "study": 0.2, "travel": 0.6, "business": 1.0}
    regions = np.random.default_rng(9).normal(0, 0.7, 25)
    region = rng.integers(0, 25, n)
    day = pd.to_timedelta(rng.integers(0, 2000, n), "D")
    table = pd.DataFrame(
        {
            "age": rng.uniform(18, 80, n).round(),
            "income": np.exp(rng.normal(8.0, 0.6, n)).round(-1),
            "amount": np.exp(rng.normal(9.0, 0.8, n)).round(-2),
            "purpose": rng.choice(list(purposes), n),
            "region": [f"region {number}" for number in region],
            "opened": pd.Timestamp("2018-01-01") + day,
            "shoe size": rng.normal(42.0, 3.0, n).round(),
        }
    )
    risk = 1.6 * np.log(table["amount"] / table["income"]) - 1.5 + regions[region]
    risk += table["purpose"].map(purposes) + 1.5 * np.cos(table["age"] / 9)
    late = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * risk)), "late", "paid")
    table.loc[rng.random(n) < 0.1, "income"] = np.nan
    table.loc[rng.random(n) < 0.05, "region"] = None
    return table, late


def table_study(work: Work) -> Study:
    """Learn a table with categories, dates and gaps."""
    X, y = late_payments(work.rows(2000), 0)
    X_test, y_test = late_payments(work.rows(5000), 1)
    texts = ["purpose", "region"]

    def typed(table: Any) -> Any:
        kinds = {name: pd.CategoricalDtype(sorted(X[name].dropna().unique())) for name in texts}
        return table.astype(kinds | {"opened": "int64"})

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), texts),
        (numbers, make_column_selector(dtype_include="number")),
    )
    trees_name, trees = boosted_trees(classes=True)
    trees = make_pipeline(FunctionTransformer(typed), trees)
    svc = make_pipeline(columns, SVC(random_state=SEED))
    model = KernelClassifier("log_loss", random_state=SEED)
    data = X, y, X_test, y_test
    methods = {"KernelClassifier": model, trees_name: trees, "SVC, columns prepared": svc}
    results = [work.measure(*each, data) for each in methods.items()]
    ax, order = axes(), np.argsort(model.feature_importances_)
    ax.barh(X.columns[order], model.feature_importances_[order], color=_STYLES[0]["color"])
    ax.set(title="Importances of the columns", xlabel="Share of the variance of f")
    figures = {"What the prediction depends on: shares of the variance of f.": ax.figure}
    ax = axes()
    for name, style in zip(list(methods)[:2], _STYLES, strict=False):
        late = methods[name].predict_proba(X_test)[:, 0]  # the first class of two
        CalibrationDisplay.from_predictions(
            y_test == "late", late, n_bins=10, strategy="quantile", name=name, ax=ax, **style
        )
    ax.set(
        title="Reliability of the probabilities",
        xlabel="Predicted probability of a late payment",
        ylabel="Share of late payments",
    )
    figures[
        "Of the loans with a predicted probability of 40 % as many should be late: the nearer "
        "to the diagonal, the better."
    ] = ax.figure
    why = ExplanationDisplay.from_estimator(model, X_test[:1], ax=axes()).figure_
    figures["Why one loan: what each column adds to f, whose sign tells the class."] = why
    return Study(
        "table",
        "A table with categories, dates and gaps",
        f"{len(y):,} invented loans with categories of text, dates and missing values train, "
        f"{len(y_test):,} test; shoe size and date tell nothing. KernelClassifier takes the "
        "table as it is, as the trees do once text is declared as categories; SVC needs a "
        "pipeline that fills gaps, scales numbers and encodes categories. All have their "
        "default parameters (ours the loss of probabilities, log_loss).",
        results,
        figures,
        model,
        X_test,
    )


def digits_study(work: Work) -> Study:
    """Tell handwritten digits apart."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=work.rows(1200), stratify=y, random_state=SEED
    )
    trees_name, trees = boosted_trees(classes=True)
    if "Hist" in trees_name:  # minutes on ten classes with its defaults
        trees.set_params(max_iter=20)
        trees_name += " of 20 trees"
    model = KernelClassifier(random_state=SEED)
    data = X, y, X_test, y_test
    methods = {"KernelClassifier": model, "SVC": SVC(), trees_name: trees}
    results = [work.measure(*each, data) for each in methods.items()]
    work.say("  two dimensions")
    chosen = y < 4
    plane = PCA(2, random_state=SEED).fit(X[chosen])
    flat = KernelClassifier("log_loss", random_state=SEED)
    flat.fit(plane.transform(X[chosen]), y[chosen])
    ax = axes()
    places = plane.transform(X[chosen])
    across, up = (np.linspace(v.min(), v.max(), 200) for v in places.T)
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    image = flat.predict(grid).reshape(200, 200)
    ax.pcolormesh(across, up, image, cmap="tab10", vmin=0, vmax=9, alpha=0.3)
    for k in range(4):
        ax.scatter(*places[y[chosen] == k].T, s=12, color=f"C{k}", label=str(k))
    ax.legend()
    ax.set(
        title="Digits 0 to 3 in two dimensions",
        xlabel="First principal component",
        ylabel="Second principal component",
    )
    return Study(
        "digits",
        "Handwritten digits",
        f"{len(y):,} digits of 8 x 8 pixels train, {len(y_test):,} test; all methods with "
        "their default parameters. KernelClassifier searches for the shape of its kernel, "
        "weights of the pixels and the penalty, which takes its time; SVC does not search.",
        results,
        {
            "Another model, of the first two principal components of four digits: colours are "
            "the predicted classes.": ax.figure,
        },
        model,
        X_test,
    )


def stream_study(work: Work) -> Study:
    """Learn from a stream, a Parquet file."""

    def waves(n: int, seed: int) -> tuple[Any, Any]:
        rng = np.random.default_rng([SEED, seed])
        X = rng.standard_normal((n, 5)).astype(np.float32)
        noise = 0.1 * rng.standard_normal(n)
        return X, np.sin(2 * X[:, 0] + X[:, 1]) + X[:, 2] * np.cos(X[:, 3]) + noise

    n, gamma = work.rows(200_000), 0.2
    X, y = waves(n, 0)
    X_test, y_test = waves(5000, 1)
    path = work.folder / "stream.parquet"
    columns = {f"x{j}": column for j, column in enumerate(X.T)} | {"y": y}
    pq.write_table(pa.table(columns), path, row_group_size=n // 20)
    source = open_source(path, target="y")

    def learn(name: str, model: Any) -> Result:
        work.say(f"  {name}")
        course, seconds = [], 0.0
        for batch in source.chunks(n // 20):
            start = clock()
            model.partial_fit(batch.X, batch.y)
            seconds += clock() - start
            losses = losses_of(model.predict(X_test), y_test)
            course.append((seconds, error_of(losses, square=True)))
        return Result(name, losses, course, square=True)

    class Sampled:
        """scikit-learn's way: a linear model of random features, learned in steps."""

        def __init__(self, n_features: int) -> None:
            sampler = RBFSampler(gamma=gamma, n_components=n_features, random_state=SEED)
            self.sampler = sampler.fit(X[:1])
            self.linear = SGDRegressor(random_state=SEED)

        def partial_fit(self, X: Any, y: Any) -> None:
            self.linear.partial_fit(self.sampler.transform(X), y)

        def predict(self, X: Any) -> Any:
            return self.linear.predict(self.sampler.transform(X))

    work.say("  loops")
    KernelRegressor(gamma=gamma, alpha=1e-6, random_state=SEED).partial_fit(X[:500], y[:500])
    model = KernelRegressor(gamma=gamma, alpha=1e-6, random_state=SEED)
    trees_name, trees = boosted_trees(classes=False)
    trees_name += ", all rows in memory"
    results = [
        learn("KernelRegressor.partial_fit", model),
        learn("RBFSampler(1000) + SGDRegressor", Sampled(1000)),
        work.measure(trees_name, trees, (X, y, X_test, y_test)),
    ]
    ax = axes()
    for result, style in zip(results[:2], _STYLES, strict=False):
        ax.plot(*zip(*result.course, strict=True), label=result.name, **style)
    ax.axhline(results[2].error, color=_STYLES[2]["color"], label=results[2].name)
    ax.axhline(0.1, color="0.5", linestyle=":", label="noise")
    ax.set(title="Test error of a stream", xlabel="Seconds of learning", ylim=(0, None))
    ax.set_ylabel("Root mean squared error")
    ax.grid(visible=True, alpha=0.3)
    ax.legend()
    return Study(
        "stream",
        "A stream from a Parquet file",
        f"{n:,} rows come from a Parquet file in twenty pieces, each seen once; nothing but "
        "the model is kept. Both streaming methods have the same bandwidth, given beforehand. "
        "The boosted trees are no streaming method: they hold all rows in memory.",
        results,
        {
            "Test error while the stream runs; no method can go below the noise. The line of "
            "the trees is that of one fit to all rows.": ax.figure
        },
        model,
        X_test,
    )


def labels_study(work: Work) -> Study:
    """Learn from few labels and many rows without."""
    X, y = load_digits(return_X_y=True)
    n = work.rows(len(y))
    X, y = X[:n], y[:n]
    order = np.random.default_rng(SEED).permutation(n)
    of_each = (2, 10, 5)  # labels of each class; the models of the last are shown
    model = SemiSupervisedKernelClassifier(random_state=SEED)
    results, ax = [], axes()
    for (name, each, alone), style in zip(
        (
            ("SemiSupervisedKernelClassifier", model, False),
            ("SVC on the labels alone", SVC(), True),
            ("LabelSpreading, 7 neighbours", LabelSpreading(kernel="knn"), False),
        ),
        _STYLES,
        strict=True,
    ):
        work.say(f"  {name}")
        errors = {}
        for count in of_each:
            known = np.concatenate([order[y[order] == k][:count] for k in range(10)])
            rest = np.setdiff1d(order, known)
            marked = np.full(n, -1)
            marked[known] = y[known]
            start = clock()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of divisions in LabelSpreading
                each.fit(X[known], y[known]) if alone else each.fit(X, marked)
                seconds = clock() - start
                predicted = each.predict(X[rest])
            losses = losses_of(predicted, y[rest])
            errors[10 * count] = error_of(losses)
        results.append(Result(name, losses, [(seconds, error_of(losses))]))
        ax.plot(*zip(*sorted(errors.items()), strict=True), label=name, **style)
    ax.set(
        title="Test error against labels",
        xlabel="Rows with a label",
        ylabel="Share of wrong classes",
    )
    ax.grid(visible=True, alpha=0.3)
    ax.legend()
    return Study(
        "labels",
        "Few labels",
        f"{len(y):,} digits, of which {10 * of_each[-1]} have a label, five of each class; the "
        "error is that of the others. SVC sees the labels alone.",
        results,
        {
            "What labels are worth: two, five and ten of each class.": ax.figure,
        },
        model,
        X[rest],
    )


def process_study(work: Work) -> Study:
    """Give intervals by a Gaussian process."""
    n = work.rows(300)
    X, y = make_friedman1(n + 2000, n_features=8, noise=1.0, random_state=SEED)
    X, X_test, y, y_test = X[:n], X[n:], y[:n], y[n:]
    kernel = ConstantKernel(10.0) * RBF(np.ones(8)) + WhiteKernel()
    theirs = GaussianProcessRegressor(kernel, normalize_y=True, random_state=SEED)
    model = KernelGaussianProcessRegressor(random_state=SEED)
    data = X, y, X_test, y_test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lengths of useless columns reach their bound
        results = [
            work.measure("KernelGaussianProcessRegressor", model, data),
            work.measure("GaussianProcessRegressor", theirs, data),
        ]
    line = np.full((100, 8), np.median(X, axis=0))
    line[:, 0] = np.linspace(0, 1, 100)
    mean, std = model.predict(line, return_std=True, include_noise=True)
    along, color = axes(), _STYLES[0]["color"]
    along.plot(line[:, 0], mean, color=color, label="mean")
    low, high = mean - 1.96 * std, mean + 1.96 * std
    along.fill_between(line[:, 0], low, high, color=color, alpha=0.25, label="95 % interval")
    along.set(title="Gaussian process", xlabel="x0; other columns at their medians", ylabel="y")
    along.legend()
    ax, level = axes(), np.linspace(0.05, 0.95, 19)
    ax.plot(level, level, ":", color="0.5", label="exact")
    for each, style in ((theirs, "-"), (model, "--")):  # the lines nearly coincide
        noise = {"include_noise": True} if each is model else {}
        mean, std = each.predict(X_test, return_std=True, **noise)
        inside = np.abs(y_test - mean) <= ndtri(0.5 + level[:, None] / 2) * std
        ax.plot(level, inside.mean(axis=1), style, label=type(each).__name__)
    ax.set(title="Coverage of the intervals", xlabel="Level", ylabel="Share of rows inside")
    ax.legend()
    return Study(
        "process",
        "Intervals of a Gaussian process",
        f"Friedman's first function of {n} rows with noise of deviation 1; three of eight "
        "columns tell nothing. Both processes find bandwidths of the columns, signal and noise "
        "by the marginal likelihood; scikit-learn's is given a kernel that can.",
        results,
        {
            "Mean and interval for new observations along one column, the others in the "
            "middle.": along.figure,
            "How many of 2,000 new rows lie in the intervals; on the diagonal as many as "
            "promised.": ax.figure,
        },
        model,
        X_test,
    )


STUDIES = (table_study, digits_study, stream_study, labels_study, process_study)
