"""The scikit-learn face: scikit-learn's own checks, laziness, and the same policy as everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from rheostat import RoutedClassifier, RoutedRegressor
from rheostat.lab.policy_file import form
from rheostat.policies import Cascade
from rheostat.policies.parse import parse_policy

SMALL = ("small", LogisticRegression())
LARGE = ("large", DecisionTreeClassifier(random_state=0))
POOL = [SMALL, LARGE]


@parametrize_with_checks(
    [
        RoutedClassifier([SMALL, LARGE]),
        RoutedClassifier([SMALL, LARGE], policy="blend"),
        RoutedRegressor([("small", Ridge()), ("large", DecisionTreeRegressor(random_state=0))], max_share=0.5),
        RoutedRegressor([("small", Ridge()), ("large", DecisionTreeRegressor(random_state=0))], policy="blend"),
    ]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def _digits() -> tuple[Any, Any, Any, Any]:
    x, y = load_digits(return_X_y=True)
    return x[:900] / 16.0, y[:900], x[900:1300] / 16.0, y[900:1300]


class Counting(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps how many rows each call of predict_proba had."""

    asked: ClassVar[list[int]] = []

    def fit(self, X: Any, y: Any) -> Counting:
        self.inner_ = KNeighborsClassifier(5).fit(X, y)
        self.classes_ = self.inner_.classes_
        self.n_features_in_ = X.shape[1]
        return self

    def predict_proba(self, X: Any) -> Any:
        Counting.asked.append(len(X))
        return self.inner_.predict_proba(X)

    def predict(self, X: Any) -> Any:
        return self.inner_.predict(X)


def test_the_large_member_is_asked_only_about_the_rows_that_need_it() -> None:
    x, y, fresh, truth = _digits()
    pool = RoutedClassifier([("small", GaussianNB()), ("large", Counting())], costs=[1, 20], max_share=0.3, cv=3).fit(x, y)
    Counting.asked.clear()
    found = pool.route(fresh)
    assert Counting.asked == [int(found.called[:, 1].sum())]
    assert 0 < Counting.asked[0] < 0.5 * len(fresh)
    assert found.cost == pytest.approx(1.0 + 20.0 * found.called[:, 1])
    small = (pool.estimators_["small"].predict(fresh) == truth).mean()
    assert pool.score(fresh, truth) > small
    assert pool.predict_proba(fresh).sum(axis=1) == pytest.approx(1.0)


def test_it_routes_by_the_policy_that_the_config_knows() -> None:
    x, y, fresh, _ = _digits()
    pool = RoutedClassifier([("small", GaussianNB()), ("large", KNeighborsClassifier(5))], cv=3).fit(x, y)
    assert parse_policy(form(pool.policy_)) == pool.policy_
    policy = pool.policy_
    assert isinstance(policy, Cascade)
    small = pool.route(fresh).values
    kept = ~pool.route(fresh).called[:, 1]
    assert (small[kept].max(axis=1) >= policy.threshold).all()


def test_it_drops_into_a_pipeline_and_a_grid_search() -> None:
    x, y, fresh, truth = _digits()
    pool = RoutedClassifier([("small", GaussianNB()), ("large", LogisticRegression(max_iter=500))], cv=3)
    steps = Pipeline([("scale", StandardScaler()), ("pool", pool)])
    grid = {"pool__policy": ["cascade", "blend"], "pool__large__C": [0.01, 1.0]}
    found = GridSearchCV(steps, grid, cv=3).fit(x, y)
    assert found.best_params_["pool__policy"] in ("cascade", "blend")
    assert found.score(fresh, truth) > 0.85


def test_texts_pass_through_to_the_members() -> None:
    texts = [f"{'good' if i % 2 else 'bad'} number {i}" for i in range(60)]
    labels = ["yes" if i % 2 else "no" for i in range(60)]
    one = make_pipeline(CountVectorizer(), MultinomialNB())
    two = make_pipeline(CountVectorizer(ngram_range=(1, 2)), LogisticRegression())
    pool = RoutedClassifier([("small", one), ("large", two)], cv=3).fit(texts, labels)
    assert pool.predict(["a good one", "a bad one"]).tolist() == ["yes", "no"]


def test_a_gain_that_can_be_foreseen_is_used_and_the_share_is_kept() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, (1200, 1))
    y = np.where(x[:, 0] > 1.0, np.sin(6.0 * x[:, 0]) * 3.0, x[:, 0]) + 0.1 * rng.normal(size=1200)
    small, large = ("small", Ridge()), ("large", KNeighborsRegressor(5))
    pool = RoutedRegressor([small, large], router=KNeighborsRegressor(25), max_share=0.4, cv=3).fit(x[:800], y[:800])
    found = pool.route(x[800:])
    assert found.call_share["large"] <= 0.5
    alone = pool.estimators_["small"].predict(x[800:])
    assert ((found.values[:, 0] - y[800:]) ** 2).mean() < 0.7 * ((alone - y[800:]) ** 2).mean()


def test_a_gain_that_cannot_be_foreseen_is_not_bought() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 2))
    y = x[:, 0] + rng.normal(size=400)
    pool = RoutedRegressor([("small", Ridge()), ("large", DecisionTreeRegressor(random_state=0))], cv=3).fit(x, y)
    assert pool.call_share_["large"] < 0.05


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"policy": "dice"}, "`policy` must be one of"),
        ({"max_share": 20.0}, "write 0.2 for 20 %"),
        ({"costs": [1.0]}, "one number of 0 or more"),
        ({"estimators": [SMALL]}, "two or more"),
        ({"estimators": [SMALL, ("large", LinearSVC())]}, "large: no `predict_proba`"),
    ],
)
def test_errors_name_the_parameter_and_the_fix(change: dict[str, Any], word: str) -> None:
    x, y, _, _ = _digits()
    with pytest.raises(ValueError, match=word):
        RoutedClassifier(POOL).set_params(**change).fit(x[:100], y[:100])


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="one class only"):
        RoutedClassifier(POOL).fit(np.zeros((20, 2)), np.zeros(20))


def test_the_guides_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "scikit-learn.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python run\n(.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "scikit-learn.md", "exec"), names)
    assert "Cascade(" in capsys.readouterr().out
    assert names["way"].called[:, 1].mean() < 0.35
