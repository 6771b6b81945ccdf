"""A pool of classifiers as one scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.model_selection import cross_val_predict
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d

from rheostat.lab.goal import Goal
from rheostat.lab.options import KINDS
from rheostat.lab.outcomes import Floats
from rheostat.lab.replay import replay
from rheostat.lab.tune import choose_policy
from rheostat.learn.members import RoutedMembers, shares_of
from rheostat.learn.routing import Routed, route, table_of
from rheostat.policies import Policy
from rheostat.signals.calibrate import fit_temperature


class RoutedClassifier(ClassifierMixin, RoutedMembers):  # type: ignore[misc]
    """Classifiers from cheap to dear behind one policy: the dear ones are asked only about the rows that need them.

    `fit` predicts every training row by members that have not seen it (cross-validation), brings each member's
    probabilities to the temperature that fits those predictions, chooses the policy's setting on them as `rheostat tune`
    does, and fits the members on all rows. `predict` replays that very policy. X may be anything the members take.

    Rows that stand in X more than once make the unseen predictions look better than they are: drop them, or give a `cv`
    that keeps them together.

    Args:
        estimators: (name, classifier) pairs, cheapest first, each with `predict_proba`.
        costs: of one call to each member, in any unit; 1 each by default.
        policy: `cascade` (a threshold on the confidence), `cascade+blend` (what was passed over keeps a weight), `delegate`
            (two members, a weight for each row), `blend` (fixed weights; all members of weight above 0 are always asked).
        max_share: the share of rows, in [0, 1], that may call the last member, by its one-sided 95 % bound on the training
            rows. A blend does not look at it.
        cv: folds, or a splitter, for the unseen predictions.

    Attributes:
        policy_: the policy, the same object that the config, the replay and the gateway know.
        call_share_: member -> share of training rows, unseen by their member, about which it would be asked.
        score_: accuracy on these rows. It was looked at when choosing, so fresh rows may do a little worse.
        temperatures_: member -> what its log probabilities are divided by.
        estimators_: member -> fitted classifier. `classes_`, `costs_`: what they say.
        n_features_in_, feature_names_in_: as the first member saw them.
    """

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]],
        *,
        costs: Sequence[float] | None = None,
        policy: str = "cascade",
        max_share: float = 0.2,
        cv: Any = 5,
    ) -> None:
        self.estimators = estimators
        self.costs = costs
        self.policy = policy
        self.max_share = max_share
        self.cv = cv

    def fit(self, X: Any, y: Any) -> RoutedClassifier:
        """Fit the members, calibrate them, choose the policy.

        Raises:
            ValueError: one class only, a member without `predict_proba`, or a parameter that makes no sense.
            GoalError: no setting of the policy keeps `max_share`.
        """
        self._checked_members()
        if self.policy not in KINDS:
            raise ValueError(f"`policy` must be one of {', '.join(KINDS)}, got {self.policy!r}")
        if missing := [name for name, member in self.estimators if not hasattr(member, "predict_proba")]:
            raise ValueError(f"{', '.join(missing)}: no `predict_proba`; wrap it in CalibratedClassifierCV")
        check_classification_targets(y)
        X, y = self._readable(X), column_or_1d(y, warn=True)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) == 1:
            raise ValueError(f"y holds one class only ({self.classes_[0]}): there is nothing to decide")
        self._fit_members(X, y)
        unseen = {
            name: np.asarray(cross_val_predict(member, X, y, cv=self.cv, method="predict_proba"), dtype=np.float64)
            for name, member in self.estimators
        }
        self.temperatures_ = {name: _temperature(scores, codes) for name, scores in unseen.items()}
        calibrated = {name: self._cooled(name, scores) for name, scores in unseen.items()}
        table = table_of(calibrated, self.costs_, len(codes), self._labels(), codes)
        goal = Goal() if self.policy == "blend" else Goal(max_share=self.max_share)
        self.policy_: Policy = choose_policy(table, goal, table.models, self.policy)
        played = replay(self.policy_, table)
        self.call_share_ = shares_of(played.called, table.models)
        self.score_ = float(played.correct.mean())
        return self

    def route(self, X: Any) -> Routed:
        """Return, for every row, who was asked, what it cost, how much each answer counts, and the probabilities."""
        check_is_fitted(self)
        X = self._readable(X)
        count = _num_samples(X)

        def ask(name: str, rows: Any) -> Floats:
            scores = self.estimators_[name].predict_proba(self._rows_of(X, rows, count))
            return self._cooled(name, np.asarray(scores, dtype=np.float64))

        return route(self.policy_, ask, self.costs_, count, self._labels())

    def predict_proba(self, X: Any) -> Floats:
        """Return rows x classes: the answers of the members that were asked, mixed by the policy's weights."""
        return self.route(X).values

    def predict(self, X: Any) -> Any:
        """Return the most probable class of every row."""
        chances = self.predict_proba(X)
        return self.classes_[chances.argmax(axis=1)]

    def _cooled(self, name: str, scores: Floats) -> Floats:
        powers = np.maximum(scores, 1e-12) ** (1.0 / self.temperatures_[name])
        cooled: Floats = powers / powers.sum(axis=1, keepdims=True)
        return cooled

    def _labels(self) -> tuple[str, ...]:
        return tuple(str(code) for code in range(len(self.classes_)))


def _temperature(scores: Floats, codes: Any) -> float:
    """The temperature that fits unseen predictions; 1 where all are right or all are wrong, which says nothing."""
    right = scores.argmax(axis=1) == codes
    if right.all() or not right.any():
        return 1.0
    return float(fit_temperature(scores, right).t)
