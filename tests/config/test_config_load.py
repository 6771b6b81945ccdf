"""Loading: what is understood, and how every mistake is told."""

from __future__ import annotations

import pathlib

import pytest
from config_files import ENV, GOOD, PARTS, load, problems, with_model, with_policy

from rheostat.config import load_config
from rheostat.errors import ConfigError
from rheostat.policies import Binary, Blend, Cascade, Chain, Rules, Use


def test_a_good_file_becomes_structs(tmp_path: pathlib.Path) -> None:
    loaded = load(tmp_path, GOOD)
    config = loaded.config
    assert config.models["fast"].version == "2026-11-01"
    assert config.models["large"].timeout == 2.0
    assert config.models["large"].base_url == ENV["LARGE_URL"]  # type: ignore[attr-defined]
    assert config.models["large"].breaker is not None
    assert config.models["large"].breaker.failure_threshold == 0
    assert config.routes["default"].deadline == 3.0
    assert config.signals["hardness"].value == 0.5  # type: ignore[attr-defined]
    assert config.holds.idle == 300.0
    assert config.admin.secret == "a-secret-of-24-characters"
    policy = loaded.policies["default"]
    assert isinstance(policy, Chain)
    rules, binary, cascade = policy.policies
    assert isinstance(rules, Rules)
    assert isinstance(binary, Binary)
    assert isinstance(binary.weak, Blend)
    assert binary.weak.weights == {"fast": 1.0, "large-b": 3.0}
    assert cascade == Cascade(stages=("fast", "large"), threshold=0.9, hysteresis=(0.88, 0.92), key="session")
    assert loaded.base == str(tmp_path)
    assert loaded.text == GOOD
    assert loaded.warnings == ()
    assert len(loaded.policy_versions["default"]) == 12


def test_the_version_follows_the_content(tmp_path: pathlib.Path) -> None:
    first, again = load(tmp_path, GOOD), load(tmp_path, GOOD)
    other = load(tmp_path, GOOD + "# a remark\n")
    assert first.version == again.version != other.version
    assert first.policy_versions == other.policy_versions
    assert load(tmp_path, GOOD.replace("0.90", "0.91")).policy_versions != first.policy_versions


MISTAKES = [
    # text, path, line, part of the message
    (with_model("max_batch_szie: 3"), "models.a.max_batch_szie", 2, "did you mean `max_batch`, which belongs under server?"),
    (with_model("max_concurency: 3"), "models.a.max_concurency", 2, "did you mean `max_concurrency`?"),
    (with_model("deadline: 3s"), "models.a.deadline", 2, "`deadline` belongs under routes.NAME"),
    (with_model("threshold: 0.5"), "models.a.threshold", 2, "belongs under a `binary` policy"),
    (with_model("tokenizer: x"), "models.a.tokenizer", 2, "`backend: onnx`"),
    (with_model("timeout: 5 seconds"), "models.a.timeout", 2, "expected a duration such as 300ms"),
    (with_model("timeout: -1"), "models.a.timeout", 2, "expected a duration"),
    (with_model('cost: "40"'), "models.a.cost", 2, "expected a number, got the text '40'; write it without quotes: 40"),
    (with_model("queue: 1.5"), "models.a.queue", 2, "expected a whole number, got `1.5`"),
    (with_model("queue: 1_000"), "models.a.queue", 2, "write 1000"),
    (with_model("queue: 010"), "models.a.queue", 2, "write 10"),
    (with_model("queue: true"), "models.a.queue", 2, "expected a whole number, got `true`"),
    (with_model("version: 1.10"), "models.a.version", 2, 'expected text, got `1.10`; write it in quotes: "1.10"'),
    (with_model("each: yes"), "models.a.each", 2, "expected true or false, got the text 'yes'; write true"),
    (with_model("each: off"), "models.a.each", 2, "write false"),
    (with_model("tags: slow"), "models.a.tags", 2, "write [slow]"),
    (with_model("tags: {a: 1}"), "models.a.tags", 2, "expected a list, each item text, got a mapping"),
    (with_model("tags: [x, 1]"), "models.a.tags[1]", 2, "expected text, got `1`"),
    (with_model("labels: [true, false]"), "models.a.labels[0]", 2, 'write it in quotes: "true"'),
    (with_model("lighter: [b]"), "models.a.lighter", 2, "expected text, got a list"),
    (with_model("breaker: 3"), "models.a.breaker", 2, "failureThreshold"),
    (with_model("breaker: {failure_threshold: 3}"), "models.a.breaker.failure_threshold", 2, "`failureThreshold`"),
    (with_model("cost: null"), "models.a.cost", 2, "expected a number, got nothing"),
    (with_model("run: threads"), "models.a.run", 2, "did you mean `thread`?"),
    ("models: {a: {callable: x}}\nroutes: {d: {policy: a}}\n", "models.a", 1, "`backend` is missing; it is one of"),
    ("models: {a: {backend: pythn}}\nroutes: {d: {policy: a}}\n", "models.a.backend", 1, "did you mean `python`?"),
    ("models: {a: {backend: [x]}}\nroutes: {d: {policy: a}}\n", "models.a.backend", 1, "got a list"),
    ("models: {a: python}\nroutes: {d: {policy: a}}\n", "models.a", 1, "expected a mapping with `backend`"),
    ("models: {a: {backend: python}}\nroutes: {d: {policy: a}}\n", "models.a", 1, "`callable` is missing; it is text"),
    ("models: {}\nroutes: {}\n", "models", 1, "there is no model"),
    ("models: {}\nroutes: {}\n", "routes", 2, "there is no route"),
    ("server: {}\n", "", 1, "`models` is missing"),
    ("- a\n", "", 1, "expected a mapping with models and routes, got a list"),
    ("", "", None, "the file is empty"),
    ("# nothing\n", "", None, "the file is empty"),
    (with_model("") + "task: regress\n", "task", 4, "expected one of classify"),
    (with_model("") + "task: classfy\n", "task", 4, "did you mean `classify`?"),
    (with_model("") + "server: {port: 80800}\n", "server.port", 4, "must be 65535 or less, got `80800`"),
    (with_model("") + "server: {port: -1}\n", "server.port", 4, "must be 0 or more"),
    (with_model("") + "server: {max_batch: 0}\n", "server.max_batch", 4, "must be 1 or more"),
    (with_model("") + "server: {header_timeout: 0}\n", "server.header_timeout", 4, "must be more than 0"),
    (with_model("") + "holds: {idle: 0s}\n", "holds.idle", 4, "must be more than 0"),
    (with_model("") + "records: {input: all}\n", "records.input", 4, "expected one of summary, raw"),
    (with_model("") + "max_batch: 3\n", "max_batch", 4, "`max_batch` belongs under server"),
    (with_model("") + "route: {}\n", "route", 4, "did you mean `routes`?"),
    (with_policy("a"), "", 0, ""),
    (with_policy("d"), "routes.default.policy", 8, "unknown model `d`; known: a, b, c"),
    (with_policy("3"), "routes.default.policy", 7, "a policy is a model's name or a mapping of one of"),
    (with_policy("casscade: {}"), "routes.default.policy", 8, "did you mean `cascade`?"),
    (with_policy("nowhere.Mine: {}"), "routes.default.policy", 8, "'nowhere' cannot be imported"),
    (with_policy("msgspec.Struct: {}"), "routes.default.policy", 8, "is not a policy"),
    (with_policy("cascade: {}\nblend: {}"), "routes.default.policy", 7, "with 2 keys: cascade, blend"),
    (with_policy("cascade: 3"), "routes.default.policy.cascade", 8, "expected a mapping with stages, threshold"),
    (with_policy("cascade: {stages: [a, b]}"), "routes.default.policy.cascade", 8, "`threshold` is missing"),
    (
        with_policy("cascade:\n  stages: [a, b]\n  threshold: 1.5"),
        "routes.default.policy.cascade.threshold",
        10,
        "must lie in [0, 1], got 1.5",
    ),
    (
        with_policy("cascade: {stages: [a, b], threshold: [high]}"),
        "routes.default.policy.cascade.threshold[0]",
        8,
        "expected a number, got the text 'high'",
    ),
    (
        with_policy("cascade: {stages: [a, b], threshold: .5, hysteresis: [0.1]}"),
        "routes.default.policy.cascade.hysteresis",
        8,
        "expected a list of 2 items, each a number, got 1 of them",
    ),
    (
        with_policy("chain:\n  - a\n  - cascade: {stages: [a, d], threshold: 0.5}"),
        "routes.default.policy.chain[1].cascade.stages[1]",
        10,
        "unknown model `d`",
    ),
    (
        with_policy("rules:\n  - {when: text ==, use: a}\n  - {wen: b, use: a}\n  - {matches: (?=x), use: a}"),
        "routes.default.policy.rules[0].when",
        9,
        "`when` is not a condition",
    ),
    (
        with_policy("rules:\n  - {when: text ==, use: a}\n  - {wen: b, use: a}\n  - {matches: (?=x), use: a}"),
        "routes.default.policy.rules[1].wen",
        10,
        "did you mean `when`?",
    ),
    (
        with_policy("rules:\n  - {when: text ==, use: a}\n  - {wen: b, use: a}\n  - {matches: (?=x), use: a}"),
        "routes.default.policy.rules[2].matches",
        11,
        "RE2",
    ),
    (with_policy("blend: {weights: {a: 0, b: 0}}"), "routes.default.policy.blend.weights", 8, "sum to more than 0"),
    (with_policy("blend: {weights: {a: -1, b: 2}}"), "routes.default.policy.blend.weights.a", 8, "must be 0 or more"),
    (
        with_policy("blend:\n  weights:\n    a: 1\n    b-1.x: -1"),
        "routes.default.policy.blend.weights.b-1.x",
        11,
        "must be 0 or more",
    ),
    (with_policy("blend: {weights: {a: .nan, b: 1}}"), "routes.default.policy.blend.weights.a", 8, "got nan"),
    (with_policy("blend: {weights: {a: NaN, b: 1}}"), "routes.default.policy.blend.weights.a", 8, "got the text 'NaN'"),
    (with_policy("blend: {weights: {a: x, b: 1}}"), "routes.default.policy.blend.weights.a", 8, "expected a number"),
    (with_policy("blend: {weights: [1, 2, 3]}"), "routes.default.policy.blend.weights", 8, "expected a mapping, got a list"),
    (with_policy("blend: {weights: {}}"), "routes.default.policy.blend.weights", 8, "sum to more than 0"),
    (with_policy("blend: {}"), "routes.default.policy.blend", 8, "`weights` is missing"),
    (
        with_policy("split: {arms: [{use: a, share: 1}, {use: b, share: -1}]}"),
        "routes.default.policy.split.arms[1].share",
        8,
        "must be 0 or more",
    ),
]


@pytest.mark.parametrize(("text", "path", "line", "said"), MISTAKES)
def test_a_mistake_is_told_with_its_place_and_remedy(
    tmp_path: pathlib.Path, text: str, path: str, line: int | None, said: str
) -> None:
    found = problems(tmp_path, text)
    if not said:
        assert found == []
        return
    assert [problem for problem in found if (problem.path, problem.line) == (path, line) and said in problem.message], found


def test_all_mistakes_come_together_in_file_order(tmp_path: pathlib.Path) -> None:
    text = (
        with_model('cost: "1", peers: [x], max_concurrency: -1')
        + "server: {port: x}\nadmin: {secret: short}\nkeys: [{key: k}, {kye: k}]\n"
    )
    found = problems(tmp_path, text)
    assert [(problem.path, problem.line) for problem in found] == [
        ("models.a.cost", 2),
        ("models.a.max_concurrency", 2),
        ("models.a.peers[0]", 2),
        ("server.port", 4),
        ("admin.secret", 5),
        ("keys[1].kye", 6),
        ("keys[1]", 6),
    ]


def test_zero_is_kept_as_zero(tmp_path: pathlib.Path) -> None:
    text = with_model("timeout: 0, max_concurrency: 0, queue: 0, cost: 0").replace(
        "{policy: a}", "{policy: a, deadline: 0, fallback: {retry: 0}}"
    )
    loaded = load(tmp_path, text + "server: {max_in_flight: 0, drain: 0, port: 0}\nrecords: {keep_rows: 0}\n")
    model, route, server = loaded.config.models["a"], loaded.config.routes["default"], loaded.config.server
    assert (model.timeout, model.max_concurrency, model.queue, model.cost) == (0, 0, 0, 0)
    assert (route.deadline, route.fallback.retry) == (0, 0)
    assert (server.max_in_flight, server.drain, server.port, loaded.config.records.keep_rows) == (0, 0, 0, 0)


def test_files_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(str(tmp_path / "none.yaml"), {}, PARTS)
    with pytest.raises(ConfigError, match="directory"):
        load_config(str(tmp_path), {}, PARTS)
    (tmp_path / "latin.yaml").write_bytes(b"models:\n  caf\xe9: {}\n")
    with pytest.raises(ConfigError, match="line 2: not UTF-8 text"):
        load_config(str(tmp_path / "latin.yaml"), {}, PARTS)
    (tmp_path / "large.yaml").write_bytes(b"#" * 5_000_000)
    with pytest.raises(ConfigError, match="larger than"):
        load_config(str(tmp_path / "large.yaml"), {}, PARTS)


def test_a_byte_order_mark_is_no_mistake(tmp_path: pathlib.Path) -> None:
    assert isinstance(load(tmp_path, "\ufeff" + with_policy("a")).policies["default"], Use)


def test_a_policy_class_beside_the_config(tmp_path: pathlib.Path) -> None:
    (tmp_path / "own_policies.py").write_text(
        "from msgspec import Struct\n"
        "from rheostat.policies import settle\n"
        "class Mine(Struct, frozen=True):\n"
        "    model: str\n"
        "    def decide(self, ctx, history):\n"
        "        return settle(self.model, history, 'mine', 'mine')\n"
        "    def models(self):\n"
        "        return (self.model,)\n"
    )
    loaded = load(tmp_path, with_policy("own_policies.Mine: {model: a}"))
    assert type(loaded.policies["default"]).__name__ == "Mine"
    wrong = "chain: [{'own_policies:Mine': {model: aa, modle: b}}, {own_policies.Mine: {model: aa}}]"
    found = problems(tmp_path, with_policy(wrong))
    assert [(problem.path, problem.message) for problem in found] == [
        ("routes.default.policy.chain[0].own_policies:Mine.modle", "unknown key; did you mean `model`?"),
        ("routes.default.policy.chain[1].own_policies.Mine.model", "unknown model `aa`; did you mean `a`?"),
    ]


def test_parts_name_their_problems_in_full(tmp_path: pathlib.Path) -> None:
    from rheostat.errors import Problem

    loaded = load(tmp_path, GOOD)
    placed = loaded.placed("models.large", [Problem("model", None, "x"), Problem("labels", None, "y"), Problem("", 3, "z")])
    assert placed == [
        Problem("models.large.model", 8, "x"),
        Problem("models.large.labels", 5, "y"),
        Problem("models.large", 3, "z"),
    ]
