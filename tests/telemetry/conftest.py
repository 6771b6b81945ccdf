import pytest

from rheostat.types import Attempt, InputSummary, Outcome, Prediction, RouteRecord


@pytest.fixture
def make_record():
    """A factory of plain records."""

    def make(number=0, *, elapsed_s=0.01, version="1", **more):
        attempt = Attempt("fast", 0.0, elapsed_s)
        outcome = Outcome("fast", Prediction("pos", 0.9), None, (attempt,), "fast", version, 0, elapsed_s, 1.0)
        base = {
            "id": f"r{number}", "wall": 1.7e9 + number, "route": "default", "status": "ok", "route_type": "cascade",
            "label": "pos", "confidence": 0.9, "weights": {"fast": 1.0}, "selected_model": "fast",
            "selected_version": version, "outcomes": (outcome,), "cost": 1.0, "elapsed_s": elapsed_s,
            "overhead_s": 0.0001, "deciding_s": 0.00003, "input": InputSummary("text", 5, "ab", "hello"),
        }  # fmt: skip
        return RouteRecord(**(base | more))

    return make
