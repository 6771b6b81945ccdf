"""The scikit-learn face: a routed pool is itself an estimator."""

from rheostat.learn.classifier import RoutedClassifier
from rheostat.learn.regressor import RoutedRegressor
from rheostat.learn.routing import Routed

__all__ = ["Routed", "RoutedClassifier", "RoutedRegressor"]
