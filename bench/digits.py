"""A pool over images: does a small model before a convolutional net pay on MNIST, and is what is served what was measured?

`python -m bench.digits`: 10,000 digits as PNG files through `rheostat evaluate`, `tune` and `report`, then 3,000 test images
through the gateway, every answer held against the replay of the same policy over the table. Models: `bench.digit_models`.
"""

from __future__ import annotations

import asyncio
import csv
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np

from bench.cascade import OUT, _gap
from bench.digit_models import digit_models, png_files, read_digits, why_absent
from bench.outage_process import gateway
from rheostat.config import load_config
from rheostat.jobs import Columns, LabelledSet, Part, Work
from rheostat.jobs import evaluate as run
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.policy_file import write_policy_file
from rheostat.lab.replay import replay
from rheostat.lab.report import write_report
from rheostat.lab.trust import trust
from rheostat.lab.tune import Tuned, tune
from rheostat.policies import Policy

BUDGET, CLIENTS = 0.20, 16
_PREPARE = "prepare: {image: {size: [28, 28], colour: grey"
MODELS = f"""\
models:
  small: {{backend: onnx, path: small.onnx, cost: 1, {_PREPARE}, layout: flat}}}}}}
  large: {{backend: onnx, path: large.onnx, cost: 20, output: logits, {_PREPARE}}}}}}}
"""


def main() -> int:
    """Run it all; return 1 when an answer of the gateway is another than the lab's."""
    absent = why_absent()
    if absent is not None:
        print(absent)
        return 0
    folder = digit_models(_tell)
    table = digit_table(folder)
    OUT.mkdir(exist_ok=True)
    said = write_report(
        table, OUT / "digits.html", title="MNIST, 10,000 digits", goal=Goal(max_share=BUDGET),
        command="python -m bench.digits", stages=("small", "large"),
    )  # fmt: skip
    print("| policy | calls of large | accuracy | against large | against the best single |\n|---|---|---|---|---|")
    for each in said.tuned:
        found = each.reported
        best = max(found.vs_each, key=lambda pair: found.single(pair[0]).quality.mean)[1]
        cells = (f"{found.share.mean:.1%}", f"{found.quality.mean:.2%}", _gap(found.vs_last), _gap(best))
        print(f"| {each.kind} | {' | '.join(cells)} |")
    for member in trust(table, ("small", "large")).members:
        print(
            f"{member.model}: train {(member.train or 0):.2%}, dev {(member.dev or 0):.2%}, test {(member.test or 0):.2%}; "
            f"{'converged' if member.converged else 'NOT converged'} after {member.iterations} steps"
        )
    print(said.headline)
    tuned = tune(table, Goal(max_share=BUDGET), stages=("small", "large"))
    return asyncio.run(_served(folder, table, tuned))


def digit_table(folder: Path) -> OutcomesTable:
    """Return every model's answer to every image, by the product's own evaluation of PNG files."""
    if not (folder / "data.csv").is_file():
        with (folder / "data.csv.part").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["file", "label", "split", "id"])
            for split, (images, truth) in read_digits().items():
                for name, label in zip(png_files(list(images), folder / split), truth.tolist(), strict=True):
                    lines.writerow([f"{split}/{name}", label, split, f"{split}/{name}"])
        (folder / "data.csv.part").rename(folder / "data.csv")
    config = folder / "rheostat.yaml"
    config.write_text(f"{MODELS}routes: {{default: {{policy: large}}}}\n")
    rows = LabelledSet([Part(folder / "data.csv")], Columns(image="file"))
    work = Work(replace=True)
    done = asyncio.run(run(load_config(str(config)), rows, folder / "outcomes.parquet", work=work))
    return done.table


async def _served(folder: Path, table: OutcomesTable, tuned: Tuned) -> int:
    """Serve the tuned policy and ask about every test image."""
    write_policy_file(tuned, table, folder / "tuned.yaml")
    server, url = gateway(folder, f"{MODELS}routes: {{default: {{policy: {{file: tuned.yaml}}}}}}\n")
    server.start()
    try:
        await server.until_ready()
        return await _compared(folder, table.select(split="test"), tuned.policy, url)
    finally:
        server.kill()


async def _compared(folder: Path, fresh: OutcomesTable, policy: Policy, url: str) -> int:
    expected = replay(policy, fresh)
    bodies = [
        msgspec.json.encode({"data": {"image": b64encode((folder / name).read_bytes()).decode()}}) for name in fresh.ids
    ]
    answers: list[dict[str, Any]] = [{}] * len(fresh)
    waits = np.zeros(len(fresh))
    todo = iter(range(len(fresh)))
    began = time.perf_counter()
    async with aiohttp.ClientSession(headers={"content-type": "application/json"}) as session:

        async def client() -> None:
            for row in todo:
                start = time.perf_counter()
                async with session.post(f"{url}/v1/predict", data=bodies[row]) as answer:
                    assert answer.status == 200, await answer.text()
                    answers[row] = (await answer.json())["data"]
                waits[row] = time.perf_counter() - start

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    rate = len(fresh) / (time.perf_counter() - began)
    large, names = fresh.models.index("large"), fresh.labels
    played = list(zip(answers, expected.label, expected.called[:, large], expected.confidence, fresh.truth, strict=True))
    labels = sum(said["final_label"] != names[code] for said, code, *_ in played)
    called = sum((said["route_info"]["selected_model"] == "large") != bool(asked) for said, _, asked, *_ in played)
    gap = max(abs(said["final_score"] - sure) for said, _, _, sure, _ in played)
    right = sum(said["final_label"] == names[code] for said, *_, code in played)
    p50, p99 = np.quantile(waits, (0.5, 0.99)) * 1e3
    print(
        f"served: {len(fresh)} PNG files at {CLIENTS} clients, {rate:.0f} requests/s, P50 {p50:.1f} ms, P99 {p99:.1f} ms; "
        f"{right / len(fresh):.2%} right; against the replay: {labels} other labels, {called} other models, confidences "
        f"differ by {gap:.1e} at most"
    )
    return int(bool(labels or called))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
