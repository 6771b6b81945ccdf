"""The `gguf` backend with a small real language model: cut off, crowded, closed, forked, and inside a Router."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from gguf_models import FILE, LABELS, STORY, TEXTS, classifier, generated, one, opened, pieces, said, writer

from rheostat import Router
from rheostat.backends.gguf_answers import GgufAnswerer, GgufClassifier, GgufWriter
from rheostat.errors import ModelError
from rheostat.pool.backend import Reply
from rheostat.types import Prediction

__all__ = ["classifier", "writer"]


def test_who_leaves_stops_the_computation_within_a_few_tokens() -> None:
    backend = opened(max_tokens=400)

    async def leave(after: int) -> None:
        async with aclosing(backend.astream(STORY, 60.0)) as stream:
            count = 0
            async for _ in stream:
                count += 1
                if count == after:
                    break

    try:
        for after in (1, 5, 9):
            before = generated(backend)
            asyncio.run(leave(after))
            one_more = opened_after(backend)
            assert generated(backend) - before - one_more <= after + 4
    finally:
        backend.close()


def opened_after(backend: GgufWriter) -> int:
    """Have a short text written by the same slot, which can begin only when the last one has ended; returns its tokens."""
    backend.probes, (trial,) = backend.probes, backend.probes or ()
    return int(one(backend, trial).output["tokens"])


def test_a_prompt_that_nobody_waits_for_is_not_read_to_its_end() -> None:
    backend = opened(context=2048, prompt_batch=16)
    try:
        before = generated(backend, "prompt_tokens_total")
        (late,) = (asyncio.run(late_kind(backend, "word " * 1500)),)
        assert late == "timeout"
        opened_after(backend)
        assert generated(backend, "prompt_tokens_total") - before < 1000
    finally:
        backend.close()


async def late_kind(backend: GgufAnswerer, row: str) -> str:
    try:
        await backend.apredict([row], 0.3)
    except ModelError as error:
        return error.kind
    return "answered"


def test_many_at_once_wait_for_their_turn_and_are_answered_as_alone(classifier: GgufClassifier) -> None:
    texts = [f"{text} {number}" for number in range(2) for text in TEXTS]
    alone = [one(classifier, text) for text in texts]
    crowd = opened(labels=LABELS, parallel=4)

    async def ask_all() -> list[Reply]:
        return [reply for (reply,) in await asyncio.gather(*[crowd.apredict([text], 60.0) for text in texts])]

    try:
        for mine, theirs in zip(map(said, asyncio.run(ask_all())), alone, strict=True):
            assert mine.scores == pytest.approx(theirs.scores, abs=0.01)
    finally:
        crowd.close()


def test_who_leaves_the_line_is_never_computed(writer: GgufWriter) -> None:
    async def go() -> int:
        running = asyncio.create_task(pieces(writer, STORY))
        await asyncio.sleep(0.05)
        before = generated(writer)
        waiting = [asyncio.create_task(writer.apredict([text], 60.0)) for text in TEXTS * 5]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await running
        return before

    before = asyncio.run(go())
    assert generated(writer) - before <= 12 + opened_after(writer)


def test_two_models_do_not_know_of_each_other(writer: GgufWriter) -> None:
    before = one(writer, TEXTS[2])
    other = opened(labels=LABELS, prompt="Is it good?")
    running = asyncio.run(together(writer, other))
    other.close()
    assert [reply.label for reply in running] == [before.label] * 3
    assert one(writer, TEXTS[2]) == before


async def together(writer: GgufWriter, other: GgufClassifier) -> list[Prediction]:
    asks = [writer.apredict([TEXTS[2]], 60.0) for _ in range(3)] + [other.apredict(TEXTS, 60.0) for _ in range(3)]
    replies = await asyncio.gather(*asks)
    return [said(reply) for (reply,) in replies[:3]]


def test_closing_ends_what_runs_and_refuses_what_comes() -> None:
    backend = opened(max_tokens=400)

    async def go() -> list[str]:
        running = [asyncio.create_task(late(backend.apredict([STORY], 60.0))) for _ in range(3)]
        await asyncio.sleep(0.4)
        await backend.aclose()
        return [*[await task for task in running], await late(backend.apredict([STORY], 60.0))]

    assert asyncio.run(go()) == ["unavailable"] * 4
    backend.close()


async def late(call: Any) -> str:
    try:
        (reply,) = await call
    except ModelError as error:
        reply = error
    return reply.kind if isinstance(reply, ModelError) else "answered"


def test_nothing_outside_the_process_can_reach_the_engine(writer: GgufWriter) -> None:
    address = str(writer._engine._server.listening_address)
    assert address.startswith("unix://")
    assert not Path(address.removeprefix("unix://")).exists()


def run(code: str) -> list[str]:
    """Run `code` in a process of its own, as it may end it or needs a memory of its own."""
    head = f"import multiprocessing, time\nfrom rheostat.backends.gguf import GgufModel\nFILE = {str(FILE)!r}\n"
    ran = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr[-2000:])
    return ran.stdout.split()


def test_a_forked_copy_refuses_and_ends_and_the_original_goes_on() -> None:
    code = """
backend = GgufModel(file=FILE, context=256, max_tokens=4).open("")
first = backend.predict(["hello"])[0].label
def copy():
    global backend
    try:
        backend.predict(["hello"])
    except Exception as error:
        print(error.kind, flush=True)
    backend.close()
    del backend
child = multiprocessing.get_context("fork").Process(target=copy)
child.start()
child.join()
assert child.exitcode == 0
print(backend.predict(["hello"])[0].label == first)
backend.close()
"""
    assert run(code) == ["unavailable", "True"]


def test_memory_comes_back_when_it_is_closed() -> None:
    code = """
from rheostat.pool.memory import give_back, process_bytes, settle_heaps
settle_heaps()  # as where models come and go
sizes = []
for _ in range(4):
    before = process_bytes()
    backend = GgufModel(file=FILE, context=512, max_tokens=4).open("")
    backend.predict(["hello"])
    full = process_bytes()
    backend.close()
    del backend
    give_back(full, full - before)
    sizes.append((full, process_bytes()))
print(sizes[-1][0] - sizes[-1][1], sizes[-1][1] - sizes[1][1])
"""
    back, kept = map(int, run(code))
    assert back > 90_000_000
    assert kept < 8_000_000


def test_a_process_ends_although_a_text_is_being_written() -> None:
    began = time.monotonic()
    code = """
backend = GgufModel(file=FILE, max_tokens=2000, context=2048).open("")
backend._begin("tell a story")
time.sleep(1)
"""
    run(code)
    assert time.monotonic() - began < 50.0


CONFIG = """
models:
  writer: {backend: gguf, file: FILE, context: 256, max_tokens: 12, resident: false, keep: 0s, stream: {first: 60s}}
  sentiment: {backend: gguf, file: FILE, context: 256, labels: [positive, negative], lighter: sorry}
  sorry: {backend: template, label: negative, confidence: 0.1}
routes:
  default: {policy: sentiment, deadline: 60s, models: [sentiment, sorry]}
  write: {policy: writer, deadline: 60s}
"""


def test_in_a_router_it_streams_is_unloaded_and_leaves_what_is_too_long_to_others(tmp_path: Path) -> None:
    (tmp_path / "rheostat.yaml").write_text(CONFIG.replace("FILE", str(FILE)))

    async def go() -> None:
        router = await Router.open(str(tmp_path / "rheostat.yaml"))
        try:
            await serve(router)
        finally:
            await router.aclose()

    asyncio.run(go())


async def serve(router: Router) -> None:
    writer, sentiment = (router.plan.pool[name] for name in ("writer", "sentiment"))
    guest = writer.on_demand
    assert guest is not None
    assert [model.runs for model in (writer, sentiment)] == ["thread", "thread"]
    assert sentiment.size > 2**20
    long = await router.apredict("word " * 300)
    assert (long.record.selected_model, long.record.level) == ("sorry", 3)
    assert long.record.outcomes[0].failure is not None
    assert long.record.outcomes[0].failure.kind == "input_too_large"
    assert not guest.loaded
    async with router.stream(router.request("Say hello.", route="write")) as stream:
        texts = [text async for text in stream]
    assert guest.loaded
    assert len(texts) > 3
    assert stream.served is not None
    assert stream.served.record.label == "".join(texts).strip()
    async with router.stream(router.request("Say hello.", route="write")) as stream:
        await anext(stream)
        assert guest.holding.users == 1
    assert guest.holding.users == 0
    loading = asyncio.create_task(router.apredict("Say hello.", route="write"))
    assert await asyncio.to_thread(guest.residency.unload, guest, 20.0)
    await asyncio.gather(loading, return_exceptions=True)
    again = await router.apredict("Say hello.", route="write")
    assert again.record.label == "".join(texts).strip()
    assert guest.tally.loads >= 3
