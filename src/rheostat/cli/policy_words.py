"""A policy in words, so that one can read what a config will do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def in_words(policy: Any) -> list[str]:
    """Return lines that say what a policy does, nested ones indented."""
    from rheostat.policies import KINDS, Use

    if isinstance(policy, Use):
        return [f"always {policy.model}"]
    names = {cls: name for name, cls in KINDS.items()}
    say = _SAYERS.get(names.get(type(policy), ""))
    return say(policy) if say is not None else _own(policy)


def _short(policy: Any) -> str:
    return str(policy.model) if type(policy).__name__ == "Use" else ""


def _then(head: str, policy: Any) -> list[str]:
    """`head model`, or `head` with the nested policy below it."""
    short = _short(policy)
    return [f"{head} {short}"] if short else [f"{head}:", *(f"  {line}" for line in in_words(policy))]


def _number(value: float | str) -> str:
    """A number, or the name of the signal that holds it."""
    return value if isinstance(value, str) else f"{value:.6g}"


def _cascade(policy: Any) -> list[str]:
    cuts = policy.threshold if isinstance(policy.threshold, tuple) else (policy.threshold,) * (len(policy.stages) - 1)
    lines = []
    for index, (stage, cut) in enumerate(zip(policy.stages, cuts, strict=False)):
        line = f"{'else ' if index else 'cascade: '}{stage} answers when its confidence is at least {_number(cut)}"
        if index == 0 and policy.hysteresis is not None:
            low, high = map(_number, policy.hysteresis)
            line += f" (between {low} and {high} as last time for the same {policy.key})"
        lines.append(line)
    lines.append(f"else {policy.stages[-1]} answers")
    if policy.max_escalations < len(policy.stages) - 1:
        lines.append(_escalations(policy))
    if policy.blend:
        lines.append(f"the answer passed over keeps a weight of {_number(policy.blend)}")
    if policy.parallel:
        lines.append("all start at once; what is not needed is cancelled")
    return lines


def _escalations(policy: Any) -> str:
    """Who is asked only after a failure, as fewer answers are passed over than there are stages to pass them to."""
    most = policy.max_escalations
    passed = "1 answer is" if most == 1 else f"{most} answers are"
    beyond = policy.stages[most + 1 :]
    asked = f"{' and '.join(beyond)} {'are' if len(beyond) > 1 else 'is'} asked only where an earlier stage fails"
    return f"but at most {passed} passed over (`max_escalations`): {asked}"


def _rules(policy: Any) -> list[str]:
    lines = ["the first rule that holds:"]
    for number, rule in enumerate(sorted(policy.rules, key=lambda each: -each.priority), 1):
        stated = [rule.when] if rule.when is not None else []
        if rule.words():
            stated.append(f"the text has {' or '.join(map(repr, rule.words()))}")
        if rule.matches is not None:
            stated.append(f"the text matches {rule.matches}")
        head = f"{number}. {rule.name or 'rule'}: when {' and '.join(stated)} ->"
        lines += [f"  {line}" for line in _then(head, rule.use)]
    return lines


def _binary(policy: Any) -> list[str]:
    head = f"binary: when {policy.signal} is at least {_number(policy.threshold)} ->"
    return [*_then(head, policy.strong), *_then("else ->", policy.weak)]


def _blend(policy: Any) -> list[str]:
    total = sum(policy.weights.values())
    shares = ", ".join(f"{name} {weight / total:.1%}" for name, weight in policy.weights.items())
    return [f"blend: {'one is drawn' if policy.mode == 'sample' else 'answers are mixed'} by weight: {shares}"]


def _delegate(policy: Any) -> list[str]:
    source = policy.weight or f"1 - confidence of {policy.weak}"
    return [
        f"delegate: the weight of {policy.strong} is {source}",
        f"below {_number(policy.low)} only {policy.weak}, above {_number(policy.high)} only {policy.strong}, "
        f"in between {'one drawn by it' if policy.mode == 'sample' else 'both, mixed by it'}",
    ]


def _cheapest(policy: Any) -> list[str]:
    names, cost = ", ".join(policy.of), policy.cost or "cost"
    lines = [f"of {names}: the one with the highest {policy.quality} - {_number(policy.trade)} * {cost}"]
    if policy.bar is not None:
        lines = [f"of {names}: the cheapest whose {policy.quality} is at least {_number(policy.bar)}, else the highest"]
    if policy.best is not None:
        lines.append(f"another than {policy.best} only when its {policy.quality} is better by {_number(policy.margin)}")
    if policy.asks > 1:
        lines.append(f"decided again after each answer, by its confidence; at most {policy.asks} answers")
    return lines


_CHOICES = {
    "shortest_wait": "where it is done soonest, by load, latency and errors (2 of 100 to one drawn, to see how that does)",
    "two_choices": "of two drawn, where it is done sooner, by load, latency and errors (2 of 100 to the first drawn)",
    "least_loaded": "with the fewest requests in hand for its score",
    "weighted": "drawn by score * share of calls that went well / (latency * requests in hand)",
}


def _balance(policy: Any) -> list[str]:
    scores = policy.scores()
    told = [name if len(set(scores.values())) == 1 else f"{name} (score {score:g})" for name, score in scores.items()]
    lines = [f"balance: of {', '.join(told)}: the one {_CHOICES[policy.choose]}"]
    if policy.sticky is not None:
        lines.append(f"the same {policy.sticky} keeps its model while that is available")
    if policy.tags is not None:
        lines.append(f"only those tagged with the request's {policy.tags}, else those tagged default, if any")
    lines.append("when it fails, the next best of the others")
    return lines


def _chain(policy: Any) -> list[str]:
    lines = ["the first of these that decides:"]
    for number, each in enumerate(policy.policies, 1):
        inner = in_words(each)
        lines += [f"  {number}. {inner[0]}", *(f"     {line}" for line in inner[1:])]
    return lines


def _split(policy: Any) -> list[str]:
    total = sum(arm.share for arm in policy.arms)
    lines = [f"split by {policy.key}:"]
    for arm in policy.arms:
        lines += [f"  {line}" for line in _then(f"{arm.share / total:.1%} {arm.name} ->".replace("  ", " "), arm.use)]
    if policy.coverage < 1.0:
        lines.append(f"  {policy.coverage:.1%} of the keys take part, the rest goes on")
    return lines


def _own(policy: Any) -> list[str]:
    fields = ", ".join(f"{name}={getattr(policy, name)!r}" for name in getattr(policy, "__struct_fields__", ()))
    return [f"{type(policy).__module__}.{type(policy).__qualname__}({fields})"]


_SAYERS: dict[str, Callable[[Any], list[str]]] = {
    "balance": _balance,
    "binary": _binary,
    "blend": _blend,
    "cascade": _cascade,
    "chain": _chain,
    "cheapest": _cheapest,
    "delegate": _delegate,
    "rules": _rules,
    "split": _split,
}
