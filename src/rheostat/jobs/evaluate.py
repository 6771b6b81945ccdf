"""Runs every model of a config over a labelled set; what is done survives a kill."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct, structs

from rheostat.build import build
from rheostat.clock import Clock, SystemClock
from rheostat.config import Loaded
from rheostat.errors import RheostatError
from rheostat.jobs.ask import Asker
from rheostat.jobs.cards import model_info
from rheostat.jobs.example import Example
from rheostat.jobs.labelled import LabelledSet, Survey
from rheostat.jobs.lines import DataError
from rheostat.lab.outcomes import ModelInfo, OutcomesTable, Source
from rheostat.lab.outcomes_file import OutcomesFileError, load
from rheostat.lab.outcomes_writer import OutcomesWriter
from rheostat.pool import ModelSettings
from rheostat.resilience.breaker import BreakerSettings
from rheostat.types import Outcome

GIVE_UP = 20
"""A model that fails on this many rows in a row stops the run, so that an outage does not become its record."""
_ROWS_OWN = frozenset({"input_refused", "input_too_large", "bad_output"})

Progress = Callable[[int, int], None]


class EvaluationStopped(RheostatError):
    """A model kept failing; what was done is kept and the same command goes on with the rest."""

    type = "evaluation_stopped"


class Evaluation(Struct, frozen=True, kw_only=True):
    """What came out: the table and its file, and what must be known about it.

    `resumed` rows were there from a run that was stopped; `cached` is True when the finished table was there already.
    `failures` counts, by model and kind, the rows a model could not answer.
    """

    table: OutcomesTable
    out: Path
    survey: Survey
    resumed: int = 0
    cached: bool = False
    failures: Mapping[str, Mapping[str, int]] = {}

    @property
    def complete(self) -> bool:
        """True when every line was usable and every model answered every row."""
        return not self.survey.bad and not self.failures


class Work(Struct, frozen=True, kw_only=True):
    """How the work is done. `batch` rows go to a local model at a time; a remote one without `max_concurrency` gets
    `concurrency` calls at a time and `tries` tries a row. `keep_inputs` stores each row's input and meta, which policies
    that read the request need to be replayed. `replace` overwrites a table of other data or models."""

    batch: int = 8
    concurrency: int = 8
    tries: int = 3
    keep_inputs: bool = True
    replace: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "concurrency", "tries"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be 1 or more, got {getattr(self, name)}")


async def evaluate(
    loaded: Loaded,
    data: LabelledSet,
    out: Path,
    *,
    models: Sequence[str] = (),
    survey: Survey | None = None,
    work: Work | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Evaluation:
    """Ask every model about every row, once, and write the outcomes table to `out` (Parquet).

    Rows are kept in the folder `<out>.part` as they are done. After a stop or a kill the same call goes on with the rest;
    when the table is there already, made of the same data by the same models, nothing is asked.

    Args:
        models: the ones to ask, in the table's order; by default all of the config.
        survey: of `data`, if the caller has made it already.
        progress: called with (rows done, rows in all), at the start and after every few rows.

    Raises:
        DataError: the data cannot be used, or `out` holds something else.
        ConfigError: a model cannot be loaded or breaks its contract.
        ResumeError: the folder of an unfinished run belongs to other data or models.
        EvaluationStopped: a model kept failing.
    """
    work = work or Work()
    settings = chosen_models(loaded, models)
    seen: Survey = survey if survey is not None else await asyncio.to_thread(data.survey)
    infos = {name: model_info(each, loaded.base) for name, each in settings.items()}
    found = _finished(out, infos, seen, work)
    if found is not None:
        return Evaluation(table=found, out=out, survey=seen, cached=True, failures=failures_in(found))
    out.parent.mkdir(parents=True, exist_ok=True)
    writer = OutcomesWriter(
        out.with_name(f"{out.name}.part"),
        infos,
        data_hash=seen.data_hash,
        sources=_sources(data, seen),
        keep_inputs=work.keep_inputs,
        batch=1_000_000,  # flushed after every chunk
    )
    try:
        resumed = len(writer.done_ids())
        if resumed < seen.rows:
            await _run(loaded, settings, data, writer, seen, work, progress, clock or SystemClock())
        table = await asyncio.to_thread(writer.finish, out)
    except BaseException:
        writer.close()
        raise
    return Evaluation(table=table, out=out, survey=seen, resumed=resumed, failures=failures_in(table))


def chosen_models(loaded: Loaded, names: Sequence[str]) -> dict[str, ModelSettings]:
    """Return the settings of the named models (none named: all), made fit for a job: a breaker would turn one bad minute
    into lost rows, and the job has its own limit on calls.

    Raises:
        DataError: the config has no such model.
    """
    known = loaded.config.models
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}"
            raise DataError(f"the config has no model {name!r}; {hint}")
    off = BreakerSettings(failure_threshold=0)
    return {name: structs.replace(known[name], breaker=off) for name in (names or known)}


def failures_in(table: OutcomesTable) -> dict[str, dict[str, int]]:
    """Count the rows that a model could not answer, by model and kind."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name in table.models:
        for reason, count in table.left_out([name]).items():
            if reason.startswith(f"{name} "):
                found[name][reason.rpartition(": ")[2]] += count
    return {name: dict(counts) for name, counts in found.items()}


async def _run(
    loaded: Loaded, settings: Mapping[str, ModelSettings], data: LabelledSet, writer: OutcomesWriter,
    survey: Survey, work: Work, progress: Progress | None, clock: Clock,
) -> None:  # fmt: skip
    only = structs.replace(loaded.config, models=dict(settings), routes={}, signals={})
    wiring = await build(structs.replace(loaded, config=only))
    try:
        pool = wiring.plan.pool.models
        asker = Asker(
            {name: pool[name] for name in settings},
            clock,
            batch=work.batch,
            concurrency=work.concurrency,
            tries=work.tries,
        )
        done, streak = writer.done_ids(), dict.fromkeys(settings, 0)
        count = len(done)
        if progress is not None:
            progress(count, survey.rows)
        for chunk in _chunks(data, asker.chunk, done):
            outcomes = await asker.ask(chunk)
            for example, each in zip(chunk, outcomes, strict=True):
                _watch(streak, each)
                writer.append(example.id, example.split, example.label, each, input=example.data, meta=example.meta)
            writer.flush()
            count += len(chunk)
            if progress is not None:
                progress(count, survey.rows)
    finally:
        for model in wiring.plan.pool.models.values():
            await model.aclose()


def _chunks(data: LabelledSet, size: int, done: frozenset[str]) -> Iterator[list[Example]]:
    chunk: list[Example] = []
    for item in data:
        if isinstance(item, Example) and item.id not in done:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def _watch(streak: dict[str, int], outcomes: Mapping[str, Outcome]) -> None:
    """Stop before rows are kept that only say that a model was away."""
    for name, outcome in outcomes.items():
        failure = outcome.failure
        away = failure is not None and failure.kind not in _ROWS_OWN
        streak[name] = streak[name] + 1 if away else 0
        if failure is not None and streak[name] >= GIVE_UP:
            raise EvaluationStopped(
                f"{name} failed on {GIVE_UP} rows in a row ({failure.kind}: {failure.message}); what was done before is "
                "kept: put it right and run the same command again, it goes on with the rest"
            )


def _finished(out: Path, infos: Mapping[str, ModelInfo], survey: Survey, work: Work) -> OutcomesTable | None:
    """The table at `out` if it is what would be made, None if one is to be made."""
    if not out.exists():
        return None
    try:
        table = load(out)
    except OutcomesFileError as error:
        if work.replace:
            return None
        raise DataError(f"{error}; to write over it use --force, or name another file with --out") from error
    kept = table.inputs is not None or not work.keep_inputs
    if table.data_hash == survey.data_hash and table.model_info == infos and table.models == tuple(infos) and kept:
        return table
    if work.replace:
        return None
    changed = [name for name in infos if table.model_info.get(name) != infos[name]]
    what = "other data or other settings of reading it" if table.data_hash != survey.data_hash else "kept inputs"
    if changed or table.models != tuple(infos):
        what = f"other models, settings or files ({', '.join(changed) or 'another order'})"
    raise DataError(f"{out} is there already and was made with {what}; use --force to write over it, or another --out")


def _sources(data: LabelledSet, survey: Survey) -> list[Source]:
    return [
        Source(name=part.path.name, hash=digest, split=split, rows=counted[split])
        for part, digest, counted in zip(data.parts, survey.hashes, survey.counted, strict=True)
        for split in ("train", "dev", "test")
        if counted[split]
    ]
