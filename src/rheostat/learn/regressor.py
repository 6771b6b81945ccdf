"""A pool of regressors as one scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d

from rheostat.lab.metrics import call_performance_curve
from rheostat.lab.outcomes import Floats
from rheostat.learn.members import RoutedMembers, column
from rheostat.learn.routing import GivenSignal, Routed, route
from rheostat.policies import Binary, Blend, Policy, Use

POLICIES: Final = ("binary", "blend")
SIGNAL: Final = "gain"
_ONE_LABEL: Final = ("value",)  # replay speaks of labels; of a regressor it only has to know who was asked


class RoutedRegressor(RegressorMixin, RoutedMembers):  # type: ignore[misc]
    """Regressors from cheap to dear behind one policy.

    `binary` asks the second of two members about the rows on which it is expected to be better: a copy of the first
    member learns by how much the squared error falls (the gain), from predictions of members that have not seen the row.
    The threshold gives the least error, on unseen predictions of the gain too, with at most `max_share` calls; where the
    gain cannot be foreseen it ends with one member for all rows. `blend` mixes all members by fixed weights that give the
    least squared error; members of weight 0 are not asked.

    Args:
        estimators: (name, regressor) pairs, cheapest first; two for `binary`.
        costs: of one call to each member, in any unit; 1 each by default.
        policy: `binary` or `blend`.
        max_share: the share of rows, in [0, 1], that may call the second member; a blend does not look at it.
        router: the regressor that learns the gain; by default a copy of the first member.
        cv: folds, or a splitter, for the unseen predictions.

    Attributes:
        policy_: the policy, the same object that the config, the replay and the gateway know.
        call_share_: member -> share of training rows, unseen by their member, about which it would be asked.
        score_: mean squared error on these rows. It was looked at when choosing, so fresh rows may do a little worse.
        router_: the fitted router, None with `blend` or when one member answers everything.
        estimators_, costs_: member -> fitted regressor, cost.
        n_features_in_, feature_names_in_: as the first member saw them.
    """

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]],
        *,
        costs: Sequence[float] | None = None,
        policy: str = "binary",
        max_share: float = 0.2,
        router: Any = None,
        cv: Any = 5,
    ) -> None:
        self.estimators = estimators
        self.costs = costs
        self.policy = policy
        self.max_share = max_share
        self.router = router
        self.cv = cv

    def fit(self, X: Any, y: Any) -> RoutedRegressor:
        """Fit the members and choose the policy.

        Raises:
            ValueError: a parameter that makes no sense.
        """
        self._checked_members()
        if self.policy not in POLICIES:
            raise ValueError(f"`policy` must be one of {', '.join(POLICIES)}, got {self.policy!r}")
        if self.policy == "binary" and len(self.estimators) != 2:
            raise ValueError(f"`policy` binary works between two members, got {len(self.estimators)}; use blend")
        X, y = self._readable(X), column_or_1d(y, warn=True)
        self._fit_members(X, y)
        target = y.astype(np.float64)
        unseen = {
            name: np.asarray(cross_val_predict(member, X, y, cv=self.cv), dtype=np.float64).reshape(-1)
            for name, member in self.estimators
        }
        self.router_ = None
        if self.policy == "blend":
            self.policy_: Policy = _least_squares(unseen, target)
            signals: Floats | None = None
        else:
            signals = self._choose_threshold(X, unseen, target)
        found = route(
            self.policy_,
            lambda name, rows: column(unseen[name][rows]),
            self.costs_,
            len(target),
            _ONE_LABEL,
            _given(signals),
        )
        self.call_share_ = found.call_share
        self.score_ = float(((found.values[:, 0] - target) ** 2).mean())
        return self

    def _choose_threshold(self, X: Any, unseen: dict[str, Floats], target: Floats) -> Floats | None:
        """Set `policy_` and `router_`; return the unseen predictions of the gain, None when there is no need of them."""
        weak, strong = unseen
        loss = {name: (values - target) ** 2 for name, values in unseen.items()}
        gain = loss[weak] - loss[strong]
        learner = self.estimators[0][1] if self.router is None else self.router
        expected = np.asarray(cross_val_predict(clone(learner), X, gain, cv=self.cv), dtype=np.float64).reshape(-1)
        curve = call_performance_curve(-loss[weak], -loss[strong], expected)
        allowed = np.flatnonzero(curve.share <= self.max_share)
        best = int(allowed[curve.quality[allowed].argmax()])
        if best in (0, len(curve.share) - 1):
            self.policy_ = Use(weak if best == 0 else strong)
            return None
        threshold = float(np.unique(expected)[::-1][best - 1])
        self.policy_ = Binary(signal=SIGNAL, threshold=threshold, weak=Use(weak), strong=Use(strong))
        self.router_ = clone(learner).fit(X, gain)
        return expected

    def route(self, X: Any) -> Routed:
        """Return, for every row, who was asked, what it cost, how much each answer counts, and the value."""
        check_is_fitted(self)
        X = self._readable(X)
        count = _num_samples(X)
        signals = None if self.router_ is None else np.asarray(self.router_.predict(X), dtype=np.float64).reshape(-1)

        def ask(name: str, rows: Any) -> Floats:
            return column(self.estimators_[name].predict(self._rows_of(X, rows, count)))

        return route(self.policy_, ask, self.costs_, count, _ONE_LABEL, _given(signals))

    def predict(self, X: Any) -> Floats:
        """Return the value of every row."""
        values: Floats = self.route(X).values[:, 0]
        return values


def _given(signals: Floats | None) -> list[GivenSignal]:
    if signals is None:
        return []
    return [GivenSignal(SIGNAL, {str(row): float(value) for row, value in enumerate(signals)})]


def _least_squares(unseen: dict[str, Floats], target: Floats) -> Policy:
    """The weights on the simplex with the least squared error (Breiman's stacking, 1996, weights summing to 1)."""
    from scipy.optimize import nnls

    names = list(unseen)
    errors = np.stack([unseen[name] - target for name in names], axis=1)
    # With weights that sum to 1 the blend's error is the blend of the errors; a heavy row of ones keeps the sum.
    heavy = 1e3 * max(1.0, float(np.abs(errors).max())) * np.sqrt(len(target))
    found, _ = nnls(np.vstack([errors, np.full((1, len(names)), heavy)]), np.append(np.zeros(len(target)), heavy))
    found = found / found.sum()
    weights = {name: float(weight) for name, weight in zip(names, found, strict=True) if weight > 1e-6}
    return Use(next(iter(weights))) if len(weights) == 1 else Blend(weights=weights)
