"""A policy named on the command line: a policy file, a route of a config, or a policy written out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from rheostat.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from rheostat.policies import Policy
    from rheostat.resilience.ladder import FallbackSettings
    from rheostat.resilience.spend import Spend
    from rheostat.signals.base import AnswerScorer, Scorer


class Given(NamedTuple):
    """The policy, what to call it, and what its route adds to it."""

    name: str
    policy: Policy
    scorers: tuple[Scorer | AnswerScorer, ...] = ()
    fallback: FallbackSettings | None = None
    spends: tuple[Spend, ...] = ()
    max_cost: float = float("inf")


def given_policy(config: str | None, route: str, policy_file: str | None, written: str | None) -> Given:
    """Return the one policy that is meant.

    Raises:
        ConfigError: it cannot be read, or its classes cannot be imported.
        NotFound: the config has no such route.
    """
    if sum(each is not None for each in (config, policy_file, written)) != 1:
        raise typer.BadParameter("name exactly one of --config, --policy-file and --policy")
    if config is not None:
        return _of_config(config, route)
    if policy_file is not None:
        place = Path(policy_file).absolute()
        return _built_in(policy_file, written_policy(f"{{file: {_quoted(place.name)}}}", str(place.parent), policy_file))
    assert written is not None
    return _built_in(written, written_policy(written, ".", "--policy"))


def written_policy(text: str, base: str, source: str) -> Policy:
    """Return the policy that `text` (YAML, as in a config) means; classes and files are looked for in `base` first.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    from rheostat.config.decode import Decoder
    from rheostat.config.document import read_document
    from rheostat.config.policies import PolicyReader
    from rheostat.policies import Policy, Rule

    document = read_document(text, None)
    reader = PolicyReader(base)
    decoder = Decoder({Policy: reader.read, Rule: reader.read_rule}, dict)
    decoder.problems += document.problems
    policy = reader.read(decoder, document.root, "policy") if document.root is not None else None
    if decoder.problems or policy is None:
        raise ConfigError(decoder.problems, source)
    return policy  # type: ignore[no-any-return]


def _of_config(config: str, route: str) -> Given:
    from rheostat.config import load_config
    from rheostat.policies import signals_of
    from rheostat.resilience.spend import spends_of
    from rheostat.signals import FEATURES, TextFeatures

    loaded = load_config(config)
    if route not in loaded.policies:
        raise NotFound(f"{config} has no route {route!r}; it has: {', '.join(loaded.policies)}")
    policy = loaded.policies[route]
    own = loaded.config.signals
    scorers: list[Scorer | AnswerScorer] = [
        settings.open(name, loaded.base)
        for name, settings in own.items()
        if not set(settings.signals(name)).isdisjoint(signals_of(policy))
    ]
    features = tuple(signal for signal in signals_of(policy) if signal in FEATURES and signal not in own)
    scorers += [TextFeatures(features)] if features else []
    costs = [model.cost for model in loaded.config.models.values()]
    spends = tuple(spends_of(loaded.config.budgets, costs, signals_of(policy)).values())
    settings = loaded.config.routes[route]
    return Given(f"route {route} of {config}", policy, tuple(scorers), settings.fallback, spends, settings.limit)


def _built_in(name: str, policy: Policy) -> Given:
    from rheostat.policies import signals_of
    from rheostat.signals import FEATURES, TextFeatures

    read = signals_of(policy)
    if strangers := [signal for signal in read if signal not in FEATURES]:
        raise NotFound(f"the signals {', '.join(strangers)} stand in a config: name it with --config")
    return Given(name, policy, (TextFeatures(read),) if read else ())


def _quoted(name: str) -> str:
    import msgspec

    return msgspec.json.encode(name).decode()
