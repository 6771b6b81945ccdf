"""The pages that are not run as a whole: their policies are policies, their tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rheostat.errors import FAILURES
from rheostat.policies import KINDS, parse_policy

DOCS = Path(__file__).parents[1] / "docs"
POLICIES = re.findall(r"```yaml policy\n(.*?)```", (DOCS / "guides" / "choosing-a-policy.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", POLICIES)
def test_every_policy_in_the_guide_is_one(block: str) -> None:
    assert callable(parse_policy(yaml.safe_load(block)).decide)


def test_the_guide_shows_every_kind() -> None:
    shown = "\n".join(POLICIES)
    assert {kind for kind in KINDS if f"{kind}:" in shown} == set(KINDS)


def test_the_table_of_failures_is_the_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (\w+) \| (\w+) \| (\w+) \| (\d+) \|$",
                      (DOCS / "reference" / "failures.md").read_text(), re.MULTILINE)  # fmt: skip
    told = {kind: (*(word == "yes" for word in words), int(status)) for kind, *words, status in rows}
    assert told == {kind: (rule.retryable, rule.counts, rule.final, rule.status) for kind, rule in FAILURES.items()}


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
