"""The label set of a model, from the one place that knows it."""

from __future__ import annotations

from collections.abc import Sequence

from rheostat.errors import ContractError


def settle_labels(configured: Sequence[str], own: Sequence[str] | None, source: str) -> tuple[str, ...] | None:
    """Return the labels in the model's own order; those in the config only have to name the same set.

    Args:
        configured: `labels` of the config, may be empty.
        own: the labels the model itself carries, in its own order, or None when it carries none.
        source: where `own` comes from, for the message.

    Raises:
        ContractError: both are given and name different sets, or a label stands twice.
    """
    for given in (configured, own or ()):
        if len(set(given)) != len(given):
            raise ContractError(f"labels {list(given)} name one label twice")
    if not own:
        return tuple(configured) or None
    if configured and set(configured) != set(own):
        missing, extra = sorted(set(configured) - set(own)), sorted(set(own) - set(configured))
        raise ContractError(
            f"labels: the config names {list(configured)}, {source} has {list(own)}"
            + (f"; missing in the model: {missing}" if missing else "")
            + (f"; not in the config: {extra}" if extra else "")
        )
    return tuple(own)
