"""Cross-checks: names that must exist, circles, clashes, doubts, secrets."""

from __future__ import annotations

import pathlib

import pytest
from config_files import GOOD, load, problems, with_model, with_policy

from rheostat.errors import Problem

BASE = with_model("")

CHANGED = [
    # what GOOD says, what is said instead, path of the problem (it stands where the change is), part of the message
    ("peers: [large-b]", "peers: [large-c]", "models.large.peers[0]", "did you mean `large-b`?"),
    ("peers: [large-b]", "peers: [large]", "models.large.peers[0]", "cannot stand in for itself"),
    ("lighter: fast", "lighter: fats", "models.large.lighter", "unknown model `fats`; did you mean `fast`?"),
    ("lighter: fast", "lighter: large", "models.large.lighter", "in a circle: large -> large"),
    ("cost: 1}", "lighter: large}", "models.fast.lighter", "circle: fast -> large -> fast"),
    ("cost: 1}", "cost: -1}", "models.fast.cost", "finite number, 0 or more, got -1"),
    ("cost: 1}", "cost: .nan}", "models.fast.cost", "got nan"),
    ("cost: 1}", "cost: .inf}", "models.fast.cost", "got inf"),
    ("cost: 1}", "tier: -2}", "models.fast.tier", "must be 0 or more"),
    ("cost: 1}", "queue: -3}", "models.fast.queue", "must be 0 or more, got -3"),
    ("cost: 1}", "max_concurrency: 2, adaptive: {}}", "models.fast.adaptive", "remove `max_concurrency`, or say `adaptive"),
    ("cost: 1}", "run: fast}", "models.fast.run", "must be one of auto, inline, thread, process, got 'fast'"),
    ("cost: 1}", "labels: [ham, junk]}", "models.fast.labels", "missing: spam, unknown; extra: junk"),
    ("cost: 1}", "labels: [ham, ham]}", "models.fast.labels", "a label stands twice"),
    ("{jsonl: records.jsonl}", "{jsonl: a.db, sqlite: ./a.db}", "records.sqlite", "same file as `records.jsonl`"),
    ("cost: 1}", "calibration: no.json}", "models.fast.calibration", "there is no file no.json"),
    ("version: v2", "version: ''", "models.large.version", "must not be empty"),
    ("failureThreshold: 0", "failureThreshold: -1", "models.large.breaker.failureThreshold", "must be 0 or more"),
    ("failureThreshold: 0", "successThreshold: 0", "models.large.breaker.successThreshold", "must be 1 or more"),
    ("[ham, spam, unknown]", "[unknown, ham, ham]", "labels", "a label stands twice"),
    ("value: 0.5}", "value: 0.5, head: h.onnx}", "signals.hardness.head", "there is no file h.onnx"),
    ("hardness: {", "hardness: {scorer: number, value: 1}\n  length: {", "signals.length", "built-in text feature"),
    (
        "signal: hardness",
        "signal: hardnes",
        "routes.default.policy.chain[1].binary.signal",
        "unknown signal `hardnes`; did you mean `hardness`?",
    ),
    (
        "text.size() > 1000",
        "signals.lenght > 1.0",
        "routes.default.policy.chain[0].rules[0].when",
        "unknown signal `lenght`; did you mean `length`?",
    ),
    (
        "{fast: 1, large-b: 3}",
        "{fast: 1, large-c: 3}",
        "routes.default.policy.chain[1].binary.weak.blend.weights.large-c",
        "unknown model `large-c`",
    ),
    ("label: unknown", "label: unknwon", "routes.default.fallback.preset.label", "did you mean `unknown`?"),
    ("label: unknown", "label: ham, confidence: 2", "routes.default.fallback.preset.confidence", "must lie in [0, 1]"),
    ("retry: 1", "retry: -1", "routes.default.fallback.retry", "must be 0 or more"),
    ("retry: 1", "default: slow", "routes.default.fallback.default", "unknown model `slow`"),
    ("deadline: 3s", "max_cost: 0", "routes.default.max_cost", "`max_cost` must be more than 0"),
    ("deadline: 3s", "models: [fast, large, large-b, lrge]", "routes.default.models[3]", "did you mean `large`?"),
    ("a-secret-of-24-characters", "short", "admin.secret", "has 5 characters, needs at least 16"),
    ("routes: [default]", "routes: [defalt]", "keys[0].routes[0]", "did you mean `default`?"),
    ("key: client-key-0123456789", "key: ''", "keys[0].key", "must not be empty"),
]


@pytest.mark.parametrize(("old", "new", "path", "said"), CHANGED)
def test_one_wrong_word_is_one_problem_at_its_line(tmp_path: pathlib.Path, old: str, new: str, path: str, said: str) -> None:
    assert GOOD.count(old) >= 1
    text = GOOD.replace(old, new, 1)
    line = text.count("\n", 0, text.index(new) + len(new)) + 1
    found = problems(tmp_path, text)
    assert [(problem.path, problem.line) for problem in found] == [(path, line)], found
    assert said in found[0].message


CLASHES = [
    (
        GOOD.replace("deadline: 3s", "models: [fast, large-b]"),
        {"routes.default.policy.chain[0].rules[0].use": "not among the `models` of this route (fast, large-b)"},
    ),
    (
        GOOD.replace("deadline: 3s", "models: [fast, large, large-b]").replace("retry: 1", "default: none"),
        {"routes.default.fallback.default": "unknown model `none`; known: fast, large, large-b"},
    ),
    (
        GOOD.replace("a-secret-of-24-characters", "client-key-0123456789"),
        {"keys[0].key": "a client's key must not be the admin secret"},
    ),
    (GOOD.replace("port: 8081", "port: 9090"), {"admin.port": "the gateway listens on 9090 too"}),
    (GOOD.replace("port: 8081", "port: 8081, grpc_port: 8081"), {"server.grpc_port": "something else listens on 8081 too"}),
    (
        BASE + "keys: [{key: abc, max_in_flight: 2}]\n",
        {"keys[0].max_in_flight": "limit of a tenant: name the key's `tenant`"},
    ),
    (
        BASE + "keys: [{key: abc, tenant: t, max_in_flight: 2}, {key: abd, tenant: t}]\n",
        {"keys[1].max_in_flight": "is 0, but keys[0] of the same tenant says 2"},
    ),
    (BASE + "keys: [{key: abc}, {key: abc}]\n", {"keys[1].key": "the same key as keys[0]"}),
    (
        with_policy(
            "chain:\n"
            "  - cascade: {stages: [a, b], threshold: 0.5, hysteresis: [0.4, 0.6]}\n"
            "  - cascade: {stages: [b, c], threshold: 0.5, hysteresis: [0.4, 0.6]}\n"
        ),
        {"routes.default.policy.chain[1].cascade": "share the name `cascade` (line 9)"},
    ),
]


@pytest.mark.parametrize(("text", "wanted"), CLASHES)
def test_what_does_not_fit_together_is_refused(tmp_path: pathlib.Path, text: str, wanted: dict[str, str]) -> None:
    found = {problem.path: problem.message for problem in problems(tmp_path, text)}
    assert list(found) == list(wanted)
    assert all(said in found[path] for path, said in wanted.items()), found


def test_names_tell_two_memories_apart(tmp_path: pathlib.Path) -> None:
    text = with_policy(
        "chain:\n"
        "  - cascade: {stages: [a, b], threshold: 0.5, hysteresis: [0.4, 0.6]}\n"
        "  - cascade: {stages: [b, c], threshold: 0.5, hysteresis: [0.4, 0.6], name: second}\n"
        "  - cascade: {stages: [a, c], threshold: 0.5}\n"
    )
    assert problems(tmp_path, text) == []


def test_a_circle_is_named_once(tmp_path: pathlib.Path) -> None:
    text = (
        "models:\n"
        '  a: {backend: python, callable: "m:a", lighter: b}\n'
        '  b: {backend: python, callable: "m:b", lighter: c}\n'
        '  c: {backend: python, callable: "m:c", lighter: b}\n'
        "routes: {default: {policy: a}}\n"
    )
    assert problems(tmp_path, text) == [Problem("models.b.lighter", 3, "goes round in a circle: b -> c -> b")]


def test_the_preset_must_be_a_label_the_models_know(tmp_path: pathlib.Path) -> None:
    text = with_model("labels: [ham, spam]").replace("{policy: a}", "{policy: a, fallback: {preset: {label: junk}}}")
    (problem,) = problems(tmp_path, text)
    assert problem.message == "`junk` is no label of the task; known: ham, spam"
    assert problems(tmp_path, text.replace("junk", "spam")) == []
    assert problems(tmp_path, text.replace("labels: [ham, spam]", "cost: 1")) == []  # known only once it is loaded


def test_files_are_looked_for_from_the_configs_folder(tmp_path: pathlib.Path) -> None:
    text = "models:\n  a: {backend: onnx, path: m/a.onnx, tokenizer: t.json}\nroutes: {default: {policy: a}}\n"
    assert [problem.path for problem in problems(tmp_path, text)] == ["models.a.path", "models.a.tokenizer"]
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a.onnx").write_bytes(b"")
    (tmp_path / "t.json").write_bytes(b"")
    assert problems(tmp_path, text) == []


def test_doubts_are_told_but_do_not_stop(tmp_path: pathlib.Path) -> None:
    text = (
        "models:\n"
        '  a: {backend: python, callable: "m:a", timeout: 20s}\n'
        '  b: {backend: python, callable: "m:b"}\n'
        "routes: {first: {policy: a, deadline: 10s}}\n"
        "server: {host: 0.0.0.0}\n"
    )
    warnings = load(tmp_path, text).warnings
    assert [(each.path, each.line) for each in warnings] == [
        ("records", 1),
        ("models.a.timeout", 2),
        ("models.b", 3),
        ("routes", 4),
        ("server.host", 5),
    ]
    assert "longer than the deadline of routes.first, 10 s" in warnings[1].message
    named = load(tmp_path, text.replace("0.0.0.0", "${HOST}"), {"HOST": "10.11.12.13"}).warnings
    assert "10.11" not in named[-1].message
    assert "${HOST}" in named[-1].message
    short = load(tmp_path, BASE + "keys: [{key: abcdefgh}]\nserver: {host: 0.0.0.0}\nrecords: {sqlite: r.db}\n").warnings
    assert [each.path for each in short] == ["keys[0].key"]


def test_what_must_not_be_shown_is_known(tmp_path: pathlib.Path) -> None:
    text = GOOD.replace("large-b: {", "large-b: {args: {api_key: inner-key-1, headers: {X-Any: header-value-1}, model: m}, ")
    loaded = load(tmp_path, text)
    assert set(loaded.secrets) >= {
        "sk-large-0123456789",
        "pass-word",
        "a-secret-of-24-characters",
        "client-key-0123456789",
        "inner-key-1",
        "header-value-1",
    }
    assert not {"qwen3-32b", "default", "session", "shop", "unknown"} & set(loaded.secrets)
    shown = repr(loaded) + repr(loaded.config.keys) + repr(loaded.config.admin)
    assert not [secret for secret in loaded.secrets if secret in shown]


BUDGETED = """
models: {fast: {backend: python, callable: "m:f", cost: 1}, large: {backend: python, callable: "m:f", cost: 9}}
routes: {default: {policy: {cascade: {stages: [fast, large], threshold: spend.monthly}}}}
budgets: {monthly: {share: 0.2, models: [large]}}
records: {sqlite: records.sqlite}
"""


def test_a_budget_makes_the_signal_that_a_threshold_names(tmp_path: pathlib.Path) -> None:
    assert load(tmp_path, BUDGETED).warnings == ()
    (unread,) = load(tmp_path, BUDGETED.replace("threshold: spend.monthly", "threshold: 0.9")).warnings
    assert "no policy reads `spend.monthly`" in unread.message
    (misspelt,) = problems(tmp_path, BUDGETED.replace("threshold: spend.monthly", "threshold: spend.montly"))
    assert "did you mean `spend.monthly`?" in misspelt.message
    (stranger,) = problems(tmp_path, BUDGETED.replace("models: [large]}", "models: [lrge]}"))
    assert "did you mean `large`?" in stranger.message
    (broken,) = problems(tmp_path, BUDGETED.replace("share: 0.2", "share: 2"))
    assert broken.path.startswith("budgets.monthly")


def test_a_budget_that_only_a_rule_reads_is_read(tmp_path: pathlib.Path) -> None:
    rule = "{rules: [{when: 'signals[\"spend.monthly.left\"] > 5.0', use: large}]}"
    text = BUDGETED.replace("{cascade: {stages: [fast, large], threshold: spend.monthly}}", rule)
    loaded = load(tmp_path, text.replace("{share: 0.2, models: [large]}", "{day: 20}"))
    assert not [warning for warning in loaded.warnings if "budget" in warning.message]
    (wrong,) = problems(tmp_path, text)  # without `day` there is no such signal
    assert "spend.monthly.left" in wrong.message
