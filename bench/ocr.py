"""Printed lines: does a recogniser before another pay? `python -m bench.ocr [count]`

Lines rendered from Python's own documentation in six fonts, clean, worn and poor (`bench.ocr_models`): how often each
recogniser reads a line without a mistake, what a cascade would bring, and what the product's own advice says. Rendered lines
show that image models with any text as their answer go through evaluation, tuning and serving, and say nothing of the world.
"""

from __future__ import annotations

import asyncio
import csv
import sys
import time

import numpy as np

from bench.ocr_models import FACES, FOLDER, NOISE, Recogniser, lines, recogniser, why_absent
from rheostat.config import load_config
from rheostat.jobs import Columns, LabelledSet, Part, Work
from rheostat.jobs import evaluate as run
from rheostat.lab.bootstrap import bootstrap
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.tune import tune
from rheostat.pool.image import ImageInput
from rheostat.pool.preparing import ImageSettings

CONFIG = """\
models:
  v4: &reader
    backend: python
    callable: bench.ocr_models:Recogniser
    args: {path: FOLDER/v4.onnx}
    cost: 26
    timeout: 20s
    prepare: {image: {size: [0, 48], colour: bgr, mean: 0.5, std: 0.5}}
  v6:
    <<: *reader
    args: {path: FOLDER/v6.onnx}
    cost: 21
routes:
  default: {policy: {cascade: {stages: [v4, v6], threshold: 0.9}}, deadline: 30s}
"""


def main(arguments: list[str]) -> int:
    """Run it; return the exit status."""
    absent = why_absent()
    if absent is not None:
        print(absent)
        return 0
    count = int(arguments[0]) if arguments else 1_800
    table, kinds = _table(count)
    fresh = table.select(split="test")
    noise = np.array([kinds[name] for name in fresh.ids])
    print(f"| recogniser | {' | '.join(NOISE)} | all {len(fresh)} | CPU ms a line |\n|---|---|---|---|---|---|")
    for name in fresh.models:
        right = fresh.correct(name).astype(np.float64)
        parts = [f"{right[noise == each].mean():.1%}" for each in NOISE]
        found = bootstrap(right)
        wait = 1e3 * _cpu_s(name)
        print(f"| {name} | {' | '.join(parts)} | {found.mean:.1%} [{found.low:.1%}, {found.high:.1%}] | {wait:.0f} |")
    either = (fresh.correct("v4") | fresh.correct("v6")).mean()
    print(
        f"\nat least one reads it: {either:.1%}; v4 where v6 errs: {(fresh.correct('v4') & ~fresh.correct('v6')).mean():.1%}"
    )
    for share in (0.5, 0.8):
        found_ = tune(table, Goal(max_share=share), stages=("v4", "v6")).reported
        print(
            f"v4 first, v6 for at most {share:.0%}: {found_.quality.mean:.1%} right at {found_.share.mean:.1%} calls of v6"
        )
    return 0


def _cpu_s(name: str) -> float:
    """Processor seconds for one line, whatever else the machine does."""
    prepare = ImageInput(ImageSettings(size=(0, 48), colour="bgr", mean=0.5, std=0.5)).prepare
    arrays = [prepare({"image": raw}) for raw, *_ in lines(60)]
    model = Recogniser(str(recogniser(name, _tell)))
    model(arrays[:1])
    began = time.process_time()
    for array in arrays:
        model([array])
    return (time.process_time() - began) / len(arrays)


def _table(count: int) -> tuple[OutcomesTable, dict[str, str]]:
    for name in ("v4", "v6"):
        recogniser(name, _tell)
    folder = FOLDER / f"lines-{count}"
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {}
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "label", "split", "id"])
        for number, (raw, text, _, noise) in enumerate(lines(count)):
            name = f"{number:05}.png"
            (folder / name).write_bytes(raw)
            kinds[name] = noise
            rows.writerow([name, text, "dev" if number // (len(FACES) * len(NOISE)) % 2 else "test", name])
    (folder / "rheostat.yaml").write_text(CONFIG.replace("FOLDER", str(FOLDER.absolute())))
    data = LabelledSet([Part(folder / "data.csv")], Columns(image="file"))
    work = Work(batch=1, keep_inputs=False, replace=True)
    done = asyncio.run(run(load_config(str(folder / "rheostat.yaml")), data, folder / "outcomes.parquet", work=work))
    return done.table, kinds


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
