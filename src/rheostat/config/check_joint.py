"""Models made of others: their parts are there, write conversations, and can go on with one another's text."""

from __future__ import annotations

from rheostat.backends.joint import JointSettings
from rheostat.config.draft import Draft
from rheostat.pool import ModelSettings


def check_joint(draft: Draft) -> None:
    """Check the parts of every model that is made of others."""
    for name, model in draft.models.items():
        if not isinstance(model, JointSettings):
            continue
        if draft.task != "chat":
            draft.wrong(f"models.{name}.backend", "writes answers in conversations: set `task: chat`")
        for field in model.parts:
            part = getattr(model, field)
            draft.exists(f"models.{name}.{field}", part, draft.models, "model")
            if isinstance(other := draft.models.get(part), ModelSettings) and (why := hindrance(other)):
                draft.wrong(f"models.{name}.{field}", f"`{part}` {why}")


def hindrance(part: ModelSettings) -> str:
    """Say why a model cannot be a part; empty when it can."""
    kind = part.__struct_config__.tag
    if isinstance(part, JointSettings):
        return "is made of others itself: name the models that write"
    if kind not in ("chat", "gguf", "mixture") or part.labels:
        return "writes no text that it could hand over: name one of `backend: chat`, or of `backend: gguf` without labels"
    if part.stream is None:
        return "gives whole answers only: set its `stream: {}`"
    if kind == "chat" and not getattr(part, "continues", ""):
        return "does not say how its server goes on with a text: set its `continues`, such as `prefill` for llama.cpp"
    return ""
