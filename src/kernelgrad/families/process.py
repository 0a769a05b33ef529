"""Gaussian processes: variances and bandwidths by the marginal likelihood, and a posterior."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernelgrad.callbacks import Deadline
from kernelgrad.choice import Choice
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import at_most
from kernelgrad.families.hurry import LEAST_ROWS
from kernelgrad.families.kernel import KernelSpec
from kernelgrad.families.reading import Run
from kernelgrad.files.records import Record, check_number, or_none
from kernelgrad.functions.scaling import UNITS, InputScaling
from kernelgrad.kernels import Kernel
from kernelgrad.model import Fit
from kernelgrad.posterior import Posterior
from kernelgrad.search.evidence import NOISE_ROWS, EvidenceSearch, has_rule
from kernelgrad.search.machine import smoothness
from kernelgrad.solvers import DSG, DirectSolve, Problem, Solver
from kernelgrad.solvers.exact import direct_bytes
from kernelgrad.tasks import ScaledColumn
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray
from kernelgrad.validation import CapabilityError, check_name, check_real

_FEATURE_SECONDS = 4.0  # Seconds below which the posterior of some rows is better.
_TRIAL_SECONDS = 1.5  # Seconds below which few rows are searched.
_DIRECT_ROWS = 8192  # Rows up to which a factorisation takes seconds and half a GiB.


class ProcessSpec(KernelSpec):
    """The posterior of a Gaussian process: exact, or by random features."""

    sees_outliers = (True, False, UNITS)  # the search of bandwidths follows them
    # A variance to a few per cent takes larger blocks, whose inverse covariances are less
    # biased, and more damped steps (measured on 500 and 2,048 rows).
    dsg_params = {"block_size": 512, "batch_size": 8192, "damping": 3.0}  # noqa: RUF012

    def check_metric(self) -> None:
        p = self.params
        if isinstance(p.metric, str):
            check_name(p.metric, ("auto", "diagonal"), "metric")
        elif p.metric is not None:
            raise TypeError(f"metric must be 'auto', 'diagonal' or None, got {p.metric!r}.")
        if self.is_pairwise:
            raise CapabilityError(
                "kernel='precomputed' does not tell k(x, x) at new rows, which the variance "
                "needs; give a kernel by name, object or function."
            )

    def make_kernel(self) -> Kernel:
        p = self.params
        kernel = self.named("median" if "gamma" in self.autos else p.gamma)
        if p.metric == "diagonal" and (
            "gamma" not in self.autos or not has_rule(kernel) or smoothness(kernel) is None
        ):
            raise ValueError(
                "metric='diagonal' finds a bandwidth for each column: it needs gamma='auto' "
                "and the kernel 'rbf', or 'matern' with nu .5, 1.5 or 2.5, without a gamma of "
                "its own; take metric=None."
            )
        return kernel

    def make_solver(self, chosen: Any) -> Solver[Any]:
        solver = super().make_solver(chosen)
        if not isinstance(solver, DSG | DirectSolve):
            raise CapabilityError(
                f"solver {solver.name!r} gives no posterior variance; use direct, dsg, udsg or "
                "cdsg."
            )
        if isinstance(solver, DirectSolve) and self.params.variance == "operator":
            raise CapabilityError(
                "variance='operator' needs random features; use solver='dsg', or leave out "
                "the variance for the exact one."
            )
        return solver

    def automatic(self, rows: TrainingRows, run: Run) -> tuple[Solver[Any], str]:
        n = rows.source.n_rows
        if self.params.variance == "operator":
            why = "variance='operator' is of random features"
        elif not rows.in_memory:
            why = "the rows are on disk"
        elif run.deadline.left() < _FEATURE_SECONDS:
            why = "time_limit is too short for random features"
            return self.make_solver(DirectSolve()), why
        elif n > _DIRECT_ROWS:
            why = f"there are more than {_DIRECT_ROWS:,} rows"
        elif direct_bytes(n, 1, rows.nbytes) > self.resources.usable:
            why = "the kernel matrix does not fit in memory"
        else:
            why = f"the posterior of up to {_DIRECT_ROWS:,} rows is a closed form"
            return self.make_solver(DirectSolve()), why
        return self.make_solver(DSG()), why

    def ordered_rows(self, rows: TrainingRows, choice: Choice) -> TrainingRows:
        """Return the rows in their order, with the task that they have in it."""
        rows = super().ordered_rows(rows, choice)
        task = ScaledColumn.learn(rows.source.chunks(), self.params.normalize_y)
        return replace(rows, task=task)

    def alpha(self, rows: TrainingRows) -> float:
        return np.nan

    def search(self, rows: TrainingRows, problem: Problem, first: Choice, run: Run) -> Choice:
        """Return the choice with variances, scaling and kernel of the largest evidence."""
        start, p, task = clock(), self.params, rows.task
        assert isinstance(task, ScaledColumn)
        fixed = [
            None if name in self.autos else float(getattr(p, name)) / task.scale**2
            for name in ("noise_variance", "signal_variance")
        ]
        searched = "gamma" in self.autos and has_rule(self.kernel)
        trials: list[Any] = []
        ratio = 1e-8  # nothing to learn from targets that do not vary
        if (searched or None in fixed) and task.varies:
            run.callbacks.on_phase("search")
            trials, standard = self._trials(rows, problem, fixed, searched)
            ratio = 0.1  # no time at all
        kernel, scaling = None, None
        if trials:
            best = trials[0]
            noise, signal, kernel = best.noise_variance, best.signal_variance, best.kernel
            if best.bandwidths is not None:
                # the largest weight of a column is 1: the rest of the bandwidths is gamma
                least = float(best.bandwidths.min())
                scaling = standard.with_metric(least / best.bandwidths)
                kernel = kernel._with_gamma(kernel.gamma_value / least**2)
        else:
            signal = 1.0 if fixed[1] is None else fixed[1]
            noise = ratio * signal if fixed[0] is None else fixed[0]
        entries: dict[str, Any] = {}
        if trials:
            entries["search"] = [trial.summary(task.scale) for trial in trials]
        if trials and p.metric == "auto":
            own = "one for all columns" if scaling is None else "one for each column"
            entries["metric_reason"] = f"of bandwidths, {own} has the largest evidence"
        noise, signal = float(task.scale**2 * noise), float(task.scale**2 * signal)
        return replace(
            first, kernel=kernel, scaling=scaling, alpha=noise / (signal * task.total),
            variances=(noise, signal), entries=entries, seconds=clock() - start,
        )  # fmt: skip

    def _trials(
        self, rows: TrainingRows, problem: Problem, fixed: list[float | None], searched: bool
    ) -> tuple[list[Any], InputScaling]:
        """Return candidates by falling evidence of some rows, and the scaling of these rows."""
        seed = problem.seed
        limit = self.resources.usable / 48  # bytes of a pair of rows in the search
        most = int(np.clip(np.sqrt(limit), 100, NOISE_ROWS))
        if problem.resources.deadline.left() < _TRIAL_SECONDS:
            most = min(most, LEAST_ROWS)
        # a source is read once, in its order
        members = rows.sample(most, draws(seed, 0x726F7773))
        X, y, weight, _ = rows.usable(rows.source.take(members))
        rule = self.scaling_rule
        standard = InputScaling.fit(X, self.kernel, standardize=rule, sample_weight=weight)
        each = {"auto": None, "diagonal": True}.get(self.params.metric, False)
        noise, signal = fixed
        with at_most(max(1, int(limit / max(1, len(y)) ** 2))):  # each has matrices of its own
            targets = rows.task.encode(y)[:, 0].astype(np.float64)
            deadline = Deadline(problem.resources.deadline.left() / 2)  # the rest: the fit
            evidence = EvidenceSearch(
                standard.apply(X), targets, weight, self.kernel, noise, signal, seed, deadline
            )
            return evidence.maximise(searched=searched, each=each), standard

    def problem(self, rows: TrainingRows, choice: Choice, run: Run) -> Problem:
        exact = isinstance(choice.solver, DirectSolve)
        return replace(super().problem(rows, choice, run), posterior=exact)

    def with_extras(self, fit: Fit, rows: TrainingRows, problem: Problem) -> Fit:
        """Return the fit with its posterior and likelihood."""
        choice, state, function = fit.choice, fit.state, fit.model.function
        assert choice.variances is not None
        problem = replace(choice.applied(problem), resources=self.resources)
        posterior = Posterior.fit(
            rows, problem, choice.solver, function, choice.variances, fit.n_iter, state,
            by_operator=self.params.variance == "operator",
        )  # fmt: skip
        value = posterior.log_likelihood(getattr(state, "coef", np.empty(0)))
        extras = {"log_marginal_likelihood_": value}
        return replace(fit, model=replace(fit.model, posterior=posterior), extras=extras)

    def attributes(self, fit: Fit) -> dict[str, Any]:
        own: dict[str, Any] = {"alpha_": fit.choice.alpha}
        if fit.choice.variances is not None:
            own["noise_variance_"], own["signal_variance_"] = fit.choice.variances
        return super().attributes(fit) | own

    def best_params(self, fit: Fit) -> dict[str, Any]:
        assert fit.choice.variances is not None
        noise, signal = fit.choice.variances
        function: Any = fit.model.function
        return super().best_params(fit) | {
            "standardize": function.scaling, "metric": None,
            "noise_variance": noise, "signal_variance": signal,
        }  # fmt: skip

    def describe(self, fit: Fit) -> tuple[dict[str, Any], dict[str, Any], dict[str, AnyArray]]:
        assert fit.model.posterior is not None
        assert fit.choice.variances is not None
        noise, signal = fit.choice.variances
        own = fit.extras | {"noise_variance_": noise, "signal_variance_": signal}
        return own, *fit.model.posterior.describe()

    def restore(self, fit: Fit, fitted: Record, extra: Record) -> Fit:
        task, number = fit.model.task, partial(check_real, low=0.0)
        assert isinstance(task, ScaledColumn)
        signal = fitted.take("signal_variance_", number)
        if "noise_variance_" in fitted:
            noise = fitted.take("noise_variance_", number)
        else:  # 0.1.0: variances of scaled targets
            signal *= task.scale**2
            noise = float(self.params.noise_variance) * task.scale**2
        value = fitted.take("log_marginal_likelihood_", or_none(check_number), None)
        choice, function, inputs = fit.choice, fit.model.function, fit.model.inputs
        choice = replace(choice, variances=(noise, signal))
        problem = self.make_problem(task, inputs, choice.seed, choice.alpha, self.resources)
        posterior = Posterior(function, noise, signal, choice.solver, problem, fit.n_iter)
        posterior.restore(extra, task, inputs.width)
        return replace(
            fit, choice=choice, model=replace(fit.model, posterior=posterior),
            extras={"log_marginal_likelihood_": value},
        )  # fmt: skip
