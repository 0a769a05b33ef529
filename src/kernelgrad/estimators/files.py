"""Fitted estimators to and from model files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kernelgrad.choice import Choice
from kernelgrad.files import container, records
from kernelgrad.files.records import Record, anything, check_number, check_text, or_none
from kernelgrad.functions.expansions import restored_expansion
from kernelgrad.functions.features import CACHE_BYTES, FeatureStream
from kernelgrad.functions.scaling import MOST_COLUMNS
from kernelgrad.inputs import Inputs
from kernelgrad.losses import Loss, get_loss
from kernelgrad.model import Fit, Model
from kernelgrad.packing import pack, packed_params, unpack
from kernelgrad.quality import Unseen
from kernelgrad.registry import Registry
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS, Solver, restored_history
from kernelgrad.tables import Table
from kernelgrad.types import AnyArray, Contents
from kernelgrad.validation import ModelFileError, bytes_of, check_int
from kernelgrad.version import __version__

if TYPE_CHECKING:
    from kernelgrad.estimators.base import BaseRowsEstimator

ESTIMATORS: Registry[Any] = Registry(
    {
        name: f"linear:{name}"
        for name in ("LinearClassifier", "LinearRegressor", "RandomFeatures")
    },
    key="__name__",
)
register_estimator = ESTIMATORS.register
REPLACED = {"saga": "svrg", "simba": "sdca"}  # linear solvers of 0.1 and 0.2 that are gone
_UNSEEN = ("judges", "left_out")  # in files: rows that tell of the quality


def check_registered(estimator: Any) -> None:
    """Raise TypeError if no file can hold an estimator, as its class has no name in files."""
    cls = type(estimator)
    if ESTIMATORS.get(cls.__name__) is not cls:
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} is not registered under its name, so that no "
            "file of it could be loaded: decorate it with "
            "kernelgrad.estimators.register_estimator, or pickle the model."
        )


def contents_of(estimator: Any, *, resumable: bool = False) -> Contents:
    """Return what a file holds of a fitted estimator; see ``BaseRowsEstimator.save``."""
    header: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "info": {"written_by": f"kernelgrad {__version__}"} | estimator.model_info(),
        "params": packed_params(estimator.get_params(deep=False)),
    }
    if not hasattr(estimator, "_fitted"):  # a transformer is its stream
        estimator._check_parameters()
        stream = estimator.stream_
        header |= {"fitted": estimator._file_attributes(), "stream": stream.describe()}
        return header, dict(stream.scaling.arrays())
    done: Fit = estimator._fitted
    spec = estimator._spec()  # a file with wrong parameters would not load
    model, choice = done.model, done.choice
    values, tensors = model.function.describe()
    own, more, extra = spec.describe(done)
    header |= {
        "fitted": {
            **model.inputs.attributes(),
            **model.task.attributes(),
            **own,
            "n_iter_": done.n_iter,
            "best_iteration_": done.best_iteration,
            "best_score_": done.best_score,
            "fit_status_": done.status,
            "_seed": choice.seed,
            "_fitted_alpha": choice.alpha,
            "_medians": model.inputs.medians,
        },
        "loss": pack(model.task.loss),
        "solver": pack(choice.solver),
        "expansion": {"kind": model.function.kind} | values,
        "history": done.history,
        "state": None,
        "table": None,
        "extra": more,
    }
    header["info"]["resumable"] = resumable
    if resumable:
        if done.state is None:
            raise ValueError(
                "This model was loaded from a file without the solver's state, or compressed; "
                "save it with resumable=False, or fit it again."
            )
        header["state"], arrays = done.state.describe()
        tensors |= container.prefixed("state", arrays)
    if model.inputs.table is not None:
        header["table"], arrays = model.inputs.table.describe()
        tensors |= container.prefixed("table", arrays)
    tensors |= container.prefixed("sample", model.describe_sample())
    unseen = done.unseen if done.leave_one_out is None else done.held_out
    for name, part in zip(_UNSEEN, (unseen, done.leave_one_out), strict=True):
        if part is not None:
            header[name], arrays = part.describe()
            tensors |= container.prefixed(name, arrays)
    return header, tensors | container.prefixed("extra", extra)


def restored(header: dict[str, Any], tensors: dict[str, AnyArray]) -> Any:
    """Return the estimator that :func:`contents_of` described."""
    record = Record(*_without_removed(header, tensors))
    name, params = record.take("estimator", check_text), record.part("params")
    if name not in ESTIMATORS:
        raise ModelFileError(
            f"The file holds a {name!r}, which is not registered here; import the module that "
            "registers it, then load again."
        )
    own = {k: unpack(v) for k, v in params.values.items()}
    for live in ("callbacks", "engine"):  # objects of a process, as `packed_params` says
        if own.get(live) is not None:
            raise params.error(f"holds {live}")
    check_text(own.get("device", ""), "device")
    estimator = ESTIMATORS[name](**own)
    record.part("info")
    fitted = record.part("fitted")
    limit = estimator.memory_limit
    limit = None if limit is None else bytes_of(limit)
    cache = CACHE_BYTES if limit is None else int(limit) // 4
    n = fitted.take("n_features_in_", partial(check_int, low=1, high=MOST_COLUMNS))
    names = fitted.take("feature_names_in_", or_none(records.check_texts), None)
    medians = fitted.take("_medians", or_none(records.check_numbers), None)
    for what, values in (("feature_names_in_", names), ("_medians", medians)):
        if values is not None and len(values) != n:
            raise fitted.error(f"holds {len(values)} entries of {what} for {n} columns")
    inputs = Inputs(name, n, names, medians=medians)
    if "stream" in record:
        estimator._check_parameters()
        home = record.beside("stream")
        record.sizes["d"] = n
        estimator._restore_stream(inputs, FeatureStream.restore(home, cache), fitted)
        home.close()
        fitted.close()
    else:
        _restore_fit(estimator, record, fitted, inputs, cache)
    record.close()
    return estimator


def _without_removed(header: dict[str, Any], tensors: dict[str, AnyArray]) -> Contents:
    """Return the contents of a file of 0.1 or 0.2 without what later versions do not have."""
    gone = ["monotonic_cst"]
    if header["estimator"] == "SemiSupervisedKernelClassifier":
        gone += ["n_folds", "probability"]
    params = {k: v for k, v in header["params"].items() if k not in gone}
    if params.get("solver") == {"value": "cached"}:
        params["solver"] = {"value": SOLVERS.renamed["cached"]}
    limit = params.get("memory_limit", {}).get("value")
    if limit is not None and bytes_of(limit, least=0.0) < 1e6:  # later versions ask for more
        params["memory_limit"] = {"value": "1 MB"}
    solver = REPLACED.get(header.get("solver", {}).get("name"))
    if solver is not None:
        instead = LINEAR_SOLVERS[solver]()
        header = header | {"solver": pack(instead), "state": None}  # the states differ
        params["solver"] = pack(instead)
        tensors = {k: a for k, a in tensors.items() if not k.startswith("state.")}
    return header | {"params": params}, tensors


def _restore_fit(
    estimator: Any, record: Record, fitted: Record, inputs: Inputs, cache: int
) -> None:
    spec, parts = estimator._spec(), {}
    for name, cls in (("loss", Loss), ("solver", Solver)):
        parts[name] = unpack(record.take(name, anything))
        if not isinstance(parts[name], cls):
            raise record.error(f"holds {parts[name]!r} as its {name}")
    task = spec.targets.task_type.restore(fitted, parts["loss"], inputs.owner)
    loss = get_loss(task.loss, task=spec.targets.kind)
    if loss.n_outputs not in (None, task.n_outputs):
        raise ValueError(f"{loss!r} does not have {task.n_outputs} outputs.")
    columns, state = (record.take(name, anything, None) for name in ("table", "state"))
    arrays, resumed, extra, sample = (
        record.part(name) for name in ("table", "state", "extra", "sample")
    )
    of_unseen = [record.part(name, C=task.n_outputs) for name in _UNSEEN]
    if columns is not None:
        inputs = replace(inputs, table=Table.restore(columns, arrays, inputs.n_features))
    arrays.close()
    inputs = replace(inputs, pairwise=spec.is_pairwise)
    record.sizes |= {"C": task.n_outputs, "d": inputs.width}
    function = restored_expansion(record.beside("expansion"), cache)
    history = restored_history(record.part("history"))
    solver = parts["solver"]
    history = {"solver": solver.name, "solver_reason": "not in the file"} | history
    alpha = fitted.take("_fitted_alpha", check_number)
    fitted.take("alpha_", check_number, None)  # files of 0.2 hold it twice
    seed = fitted.take("_seed", partial(check_int, high=2**32))
    choice = Choice(
        seed, solver, history["solver_reason"], alpha=alpha, max_iter=estimator.max_iter
    )
    n_iter = fitted.take("n_iter_", check_int)
    if state is not None:
        problem = spec.make_problem(task, inputs, seed, alpha, spec.resources)
        state = solver.restore(problem, state, resumed.arrays)
        if state.iteration != n_iter:
            raise record.error(f"holds a state of {state.iteration} iterations, not {n_iter}")
    elif resumed.arrays:
        raise record.error("holds arrays of a state that it does not have")
    done = Fit(
        Model(inputs, task, function).with_sample(sample), choice, state, history,
        fitted.take("fit_status_", check_text), n_iter,
        fitted.take("best_iteration_", check_int),
        fitted.take("best_score_", or_none(check_number)),
    )  # fmt: skip
    own, others = (Unseen.restore(part, task) for part in of_unseen)
    done = spec.restore(replace(done, held_out=own, saved_leave_one_out=others), fitted, extra)
    for part in of_unseen:
        part.close()
    fitted.close()
    extra.close()
    estimator._set(spec, done)


def load(path: container.Place, *, key: bytes | None = None) -> BaseRowsEstimator:
    """Load a model that ``save`` wrote; never executes code from the file.

    Names, types, shapes, ranges and indices are checked before they are used; only a signature
    tells that the file is the one that was saved.

    Parameters
    ----------
    path : str, path-like, or an open binary file such as ``BytesIO``
    key : bytes or None, default=None
        The secret with which the file must be signed, by ``save(path, key=key)``; with None
        signatures are ignored.

    Returns
    -------
    KernelClassifier, KernelRegressor, or any other estimator of this package
        Predictions are identical to those of the saved model.

    Raises
    ------
    ModelFileError
        The file is foreign, truncated, altered, of a newer version, not signed under the key,
        or uses a loss, kernel or solver that is not registered.
    """
    header, arrays = container.read_container(path, key=key)
    with records.restoring(path):
        if "object" in header:
            raise ModelFileError(
                "The file holds a pipeline of scikit-learn, which only kernelgrad 0.2 reads; "
                "load it there, and write it with skops instead."
            )
        estimator = restored(header, arrays)
    return cast("BaseRowsEstimator", estimator)
