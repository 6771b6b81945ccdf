"""Conversations that are kept: what their routes need."""

from __future__ import annotations

import os

from rheostat.config.draft import Draft
from rheostat.sessions.settings import SessionSettings


def check_sessions(draft: Draft) -> None:
    """Check that routes keep conversations, that whoever sums them up is there, and that the store's file is its own."""
    settings = draft.decoder.decoded.get("sessions", SessionSettings())
    routes = {name: route.session for name, route in draft.routes.items() if route is not None and route.session is not None}
    for name, session in routes.items():
        if draft.task != "chat":
            draft.wrong(f"routes.{name}.session", "only conversations are kept: set `task: chat`, or remove it")
        if session.summary_by is not None:
            draft.exists(f"routes.{name}.session.summary_by", session.summary_by, draft.models, "model")
        models = (draft.routes[name].models if draft.routes[name] is not None else ()) or tuple(draft.models)  # type: ignore[union-attr]
        known = [model for each in models if (model := draft.models.get(each)) is not None]
        if session.fit == "summary" and known and not any(model.max_input for model in known):
            told = "no model of the route has `max_input`, so nothing is ever summed up"
            draft.doubtful(f"routes.{name}.session.fit", told)
    if not isinstance(settings, SessionSettings):
        return  # wrong, which was said already
    if "sessions" in draft.sections and not routes and all(route is not None for route in draft.routes.values()):
        draft.doubtful("sessions", "no route has `session`, so this changes nothing")
    if settings.path is None:
        return
    records, results = draft.decoder.decoded.get("records"), draft.decoder.decoded.get("results")
    for name, part in (("records", records), ("results", results)):
        for field in ("jsonl", "sqlite", "path"):
            other = getattr(part, field, None)
            if isinstance(other, str) and os.path.normpath(other) == os.path.normpath(settings.path):
                draft.wrong("sessions.path", f"is the same file as `{name}.{field}`; name another")
