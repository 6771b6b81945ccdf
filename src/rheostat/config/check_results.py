"""Answers that come later: what their routes and their file need."""

from __future__ import annotations

import os

from rheostat.config.draft import Draft
from rheostat.results.settings import ResultSettings


def check_results(draft: Draft) -> None:
    """Check that what routes promise can be kept."""
    results = draft.decoder.decoded.get("results", ResultSettings())
    if results is None or not isinstance(results, ResultSettings):
        return  # wrong, which was said already
    ladders = {name: route.fallback for name, route in draft.routes.items() if route is not None}
    for name, fallback in ladders.items():
        if fallback.later and results.path is None:
            message = "needs a file in which requests wait: add `results: {path: results.sqlite}`"
            draft.wrong(f"routes.{name}.fallback.later", message)
    used = any(fallback.later for fallback in ladders.values())
    if "results" in draft.sections and not used and len(ladders) == len(draft.routes):
        draft.doubtful("results", "no route has `fallback: {later: true}`, so this changes nothing")
    records = draft.decoder.decoded.get("records")
    if results.path is not None and records is not None:
        for name in ("jsonl", "sqlite"):
            other = getattr(records, name)
            if other is not None and os.path.normpath(other) == os.path.normpath(results.path):
                draft.wrong("results.path", f"is the same file as `records.{name}`; name another")
