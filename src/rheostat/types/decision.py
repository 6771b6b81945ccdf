"""What a policy says."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

Hold = tuple[str, str]
"""A state to remember for this key: (policy name, value). Hysteresis is the only user so far."""


class Floor(Struct, frozen=True):
    """How sure the final answer has to be: with a confidence under `below`, or none, it is marked for a person to review.

    `label` is then said in place of the best guess, which is kept beside it; with None the guess itself is said, marked.
    """

    below: float
    label: str | None = None


class Call(Struct, frozen=True):
    """These models should be running: those not yet started are started, those in flight go on.

    `by` names the kind of policy that decided. `propensity` is the chance, in (0, 1], that this choice was made; below 1
    only where chance took part. `trouble` says which part of the router itself failed, so that this was decided without it.
    """

    models: tuple[str, ...]
    reason: str
    by: str = ""
    propensity: float = 1.0
    floor: Floor | None = None
    trouble: str = ""


class Answer(Struct, frozen=True):
    """The request ends: outcomes are combined by `weights`; what is still in flight is cancelled.

    `weights` maps models with a good outcome to non-negative weights; they are normalised to sum 1.
    `missing` names models that should have counted and could not. `stand_ins` gives scores by label, which sum to 1, for
    models in `weights` that failed: they count in the place of their answers.
    """

    weights: Mapping[str, float]
    reason: str
    by: str = ""
    propensity: float = 1.0
    hold: Hold | None = None
    missing: tuple[str, ...] = ()
    floor: Floor | None = None
    stand_ins: Mapping[str, Mapping[str, float]] = {}
    trouble: str = ""


class Decline(Struct, frozen=True):
    """No decision: either this policy does not apply (`failed` False: the next in a chain is asked),
    or it applied and its models could not answer (`failed` True: the fallback ladder takes over). With `alone` too no model
    that it did not name is asked instead (L3 is left out)."""

    reason: str
    failed: bool = False
    floor: Floor | None = None
    trouble: str = ""
    alone: bool = False


Decision = Call | Answer | Decline
