"""Conversations: which models go on with them, and what makes no sense of a text."""

from __future__ import annotations

from rheostat.config.draft import Draft
from rheostat.policies import Blend, walk
from rheostat.pool import ModelSettings


def check_chat(draft: Draft) -> None:
    """Check that chat models and `task: chat` go together, and that nothing there needs labels."""
    if draft.task != "chat":
        for name, model in draft.models.items():
            if isinstance(model, ModelSettings) and model.__struct_config__.tag == "chat":
                told = "answers conversations: set `task: chat`, or use `backend: openai`, which chooses a label"
                draft.wrong(f"models.{name}.backend", told)
            if isinstance(model, ModelSettings) and model.can is not None:
                draft.wrong(f"models.{name}.can", "is about conversations (`task: chat`); remove it")
        return
    for name, model in draft.models.items():
        if getattr(model, "price", None) is not None and f"models.{name}.cost" not in draft.decoder.lines:
            told = (
                "is missing: with `price`, say what a typical call costs; it counts beforehand, and where no usage is told"
            )
            draft.doubtful(f"models.{name}.cost", told)
    if draft.labels:
        draft.wrong("labels", "the answers of `task: chat` are texts; remove `labels` here (a model may have its own)")
    for name, policy in draft.policies.items():
        for part in walk(policy):
            if (isinstance(part, Blend) and part.mode == "mix") or getattr(part, "blend", None):
                told = f"`{part.name}` mixes answers, and texts cannot be mixed; let a cascade or rules choose one"
                draft.wrong(f"routes.{name}.policy", told)
    _check_vectors(draft)
    for name, route in draft.routes.items():
        if route is not None and route.fallback.later:
            draft.wrong(f"routes.{name}.fallback.later", "a conversation is not completed later; remove it")


def _check_vectors(draft: Draft) -> None:
    """Check that the vectors of a route come from one model: those of others cannot be compared with them."""
    for name, route in draft.routes.items():
        if route is None:
            continue
        embedders = {
            each: getattr(model, "model", each)
            for each in (route.models or tuple(draft.models))
            if isinstance(model := draft.models.get(each), ModelSettings) and "embedding" in model.kinds
        }
        if len(set(embedders.values())) > 1:
            told = (
                f"{', '.join(embedders)} embed by different models, whose vectors cannot be compared: list in `models` "
                "those of one model only, or take `embedding` out of the others' `serves`"
            )
            draft.wrong(f"routes.{name}.models", told)
