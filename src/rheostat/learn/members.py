"""What both routed estimators share: their members, fitted and asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags, _safe_indexing, assert_all_finite, get_tags, indexable
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted

from rheostat.lab.outcomes import Floats


class RoutedMembers(_BaseComposition):  # type: ignore[misc]
    """Holds `estimators`, a list of (name, estimator), cheapest first; their parameters are `name__parameter`."""

    estimators: Sequence[tuple[str, Any]]
    costs: Sequence[float] | None
    max_share: float
    estimators_: dict[str, Any]
    costs_: dict[str, float]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with `deep` those of the members too."""
        return self._get_params("estimators", deep=deep)  # type: ignore[no-any-return]

    def set_params(self, **params: Any) -> Any:
        """Set parameters; `name` replaces a member, `name__parameter` sets one of its own."""
        return self._set_params("estimators", **params)

    @property
    def n_features_in_(self) -> int:
        """The number of features the first member was fitted with."""
        try:
            check_is_fitted(self)
        except ValueError as error:  # NotFittedError is one; hasattr() needs an AttributeError
            raise AttributeError(f"{type(self).__name__} has no n_features_in_ before fit") from error
        count: int = next(iter(self.estimators_.values())).n_features_in_
        return count

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        members = [get_tags(member) for _, member in self.estimators]
        for name in ("sparse", "allow_nan", "string", "pairwise", "categorical"):
            setattr(tags.input_tags, name, all(getattr(each.input_tags, name) for each in members))
        return tags

    def _checked_members(self) -> None:
        """Refuse what cannot be a pool.

        Raises:
            ValueError: naming the parameter and the fix.
        """
        if len(self.estimators) < 2:
            raise ValueError(f"`estimators` needs two or more (name, estimator), got {len(self.estimators)}")
        names = [name for name, _ in self.estimators]
        self._validate_names(names)
        if not 0.0 <= self.max_share <= 1.0:
            raise ValueError(f"`max_share` must lie in [0, 1], got {self.max_share} (write 0.2 for 20 %)")
        costs = [1.0] * len(names) if self.costs is None else [float(cost) for cost in self.costs]
        if len(costs) != len(names) or not all(np.isfinite(cost) and cost >= 0.0 for cost in costs):
            raise ValueError(f"`costs` needs one number of 0 or more for each of {', '.join(names)}, got {self.costs}")
        self.costs_ = dict(zip(names, costs, strict=True))

    def _fit_members(self, X: Any, y: Any) -> None:
        self.estimators_ = {name: clone(member).fit(X, y) for name, member in self.estimators}
        first = next(iter(self.estimators_.values()))
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_

    def _readable(self, X: Any) -> Any:
        """X as something whose rows can be taken; refuses NaN and infinity unless every member takes them.

        Which member is asked must not decide whether a row is refused, so this is not left to the members.
        """
        (rows,) = indexable(X)
        numbers = getattr(rows, "data", rows) if hasattr(rows, "tocsr") else rows
        if isinstance(numbers, np.ndarray) and not get_tags(self).input_tags.allow_nan:
            assert_all_finite(numbers, estimator_name=type(self).__name__, input_name="X")
        return rows

    def _rows_of(self, X: Any, rows: Any, count: int) -> Any:
        """The rows a member is asked about; all of them as they are, so that nothing is copied in vain."""
        return X if len(rows) == count else _safe_indexing(X, rows)


def shares_of(called: Any, names: Sequence[str]) -> Mapping[str, float]:
    """Return the share of rows that called each member."""
    return {name: float(called[:, at].mean()) for at, name in enumerate(names)}


def column(values: Any) -> Floats:
    """Return one value a row as a matrix of one column."""
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)
