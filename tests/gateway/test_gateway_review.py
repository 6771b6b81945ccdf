"""Budgets and review over real sockets: what a client asks for, what it is told, and what waits for a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from gateway_wire import ask

from conftest import write_config
from rheostat.gateway.handle import ServerHandle
from rheostat.lab.review import waiting
from rheostat.telemetry import SqliteReader

UNSURE = """
      review:
        policy: {cascade: {stages: [fast, large], threshold: spend.large}}
        below: 0.9
        label: unsure
"""
MORE = """
budgets: {large: {share: 0.3, models: [large], start: 0.8, step: 0.5}}
records: {sqlite: records.db, input: raw}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = Path(write_config(tmp_path, MORE))
    plain = "default: {policy: {cascade: {stages: [fast, large], threshold: 0.9}}, models: [fast, large]}"
    text = path.read_text()
    assert plain in text
    path.write_text(text.replace(plain, f"default:\n    models: [fast, large]\n    policy:{UNSURE.rstrip()}"))
    return path


def test_an_unsure_answer_is_marked_counted_and_queued_and_a_budget_is_kept(place: Path) -> None:
    with ServerHandle(str(place)) as handle:
        sure = ask(handle.url, body={"text": "plain"}).json["data"]
        poor = ask(handle.url, body={"text": "is it?", "route": {"max_cost": 5}}).json["data"]
        doubtful = [ask(handle.url, body={"text": f"{n} is it?"}).json["data"] for n in range(20)]
        page = ask(handle.url, "/metrics").body.decode()
    assert (sure["final_label"], sure["route_info"]["review"], sure["route_info"]["guess"]) == ("yes", False, None)
    info = poor["route_info"]
    assert (poor["final_label"], info["review"], info["guess"], info["cost"]) == ("unsure", True, "yes", 1.0)
    assert "0.5000 < 0.9" in info["review_reason"]
    asked = [data["route_info"]["cost"] > 1.0 for data in doubtful]
    assert asked[0]
    assert not all(asked)  # the threshold has fallen under .5, where the small model's doubtful answers lie
    assert {data["final_label"] for data in doubtful} == {"unsure"}
    assert 'rheostat_review_total{route="default"} 21' in page
    assert 'rheostat_spend_used{budget="large"}' in page
    store = place.parent / "records.db"
    queue = list(waiting(store))
    assert [record.guess for record in queue[:1]] == ["yes"]
    assert len(queue) == 21
    reader = SqliteReader(store)
    try:
        told = [record.signals["spend.large"] for record in reversed(reader.recent(22))]
    finally:
        reader.close()
    assert told[0] == pytest.approx(0.8)
    assert min(told) < 0.5
