"""The end of the demo: judge, report, tell."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rheostat.demo.clients import Heard
from rheostat.demo.examples import Example
from rheostat.demo.place import CASCADE, Place
from rheostat.demo.pool_config import ORDER
from rheostat.demo.results import Results, Way, results
from rheostat.demo.steps import Steps
from rheostat.demo.table import as_data, table_lines
from rheostat.demo.tuning import GOAL, Choice

if TYPE_CHECKING:
    from rheostat.lab.outcomes import OutcomesTable
    from rheostat.lab.verdict import Verdict


def judged(
    place: Place,
    test: OutcomesTable,
    ways: list[Way],
    heard: Mapping[str, list[Heard]],
    stages: tuple[str, ...],
    clients: int,
) -> Results:
    """Judge what the clients heard, with what the gateway recorded beside it."""
    from rheostat.telemetry import SqliteReader

    reader = SqliteReader(place.out / "records.sqlite")
    try:
        called = reader.query("SELECT DISTINCT id FROM calls WHERE model = ?", (ORDER[-1],))
        recorded = int(reader.query("SELECT count(*) FROM records")[0][0])
    finally:
        reader.close()
    return results(
        test,
        [(way, heard[way.route]) for way in ways],
        frozenset(row[0] for row in called),
        recorded,
        rivals=[f"all {ORDER[-1]}", f"all {ORDER[-2]}"],
        among=stages,
        clients=clients,
    )


def reported(place: Place, table: OutcomesTable, chosen: Mapping[str, Choice]) -> Verdict:
    """Write the HTML report; return its verdict."""
    from rheostat.lab.report import write_report

    return write_report(
        table,
        place.out / "report.html",
        title="Positive or negative? Sentences from tweets, reviews and editorials",
        stages=chosen[CASCADE].best.stages,
        goal=GOAL,
        tuned=[choice.best for choice in chosen.values()],
        command="rheostat demo",
    )


def tell_result(place: Place, steps: Steps, found: Results, said: Verdict) -> None:
    """Show the table and say what it means, doubts included."""
    lines = table_lines(found)
    (place.out / "table.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for line in ("", *lines, ""):
        steps.show(line)
    steps.say(said.headline)
    for line in said.caution:
        steps.say(f"But know: {line}.")
    agree = "every one" if not found.differs else f"all but {found.differs:,}"
    steps.say(
        f"Replay is what serves: of {found.requests:,} answers over HTTP, {agree} had the label and the calls that the "
        f"table of step 4 foretold. Records kept: {found.recorded:,} of {found.requests:,}."
    )


def write_findings(place: Place, steps: Steps, found: Results, said: Verdict) -> None:
    """Write everything that was found as JSON, with the seconds of each step."""
    data = {"verdict": said.headline, "caution": said.caution, **as_data(found), "seconds": steps.seconds}
    (place.out / "table.json").write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n")


def tell_examples(place: Place, steps: Steps, shown: list[Example]) -> None:
    """Tell requests from their records, as `rheostat explain` does."""
    from rheostat.telemetry import SqliteReader
    from rheostat.telemetry.telling import tell

    reader = SqliteReader(place.out / "records.sqlite")
    try:
        for number, example in enumerate(shown, 1):
            record = reader.get(example.request)
            if record is not None:
                steps.show(f"\n    ({number}) {example.title}", "bold")
                for line in tell(record, reader.feedback_for(example.request)):
                    steps.show(f"    {line}".rstrip())
        steps.show()
    finally:
        reader.close()


def tell_next(place: Place, steps: Steps) -> None:
    """Say where everything lies and how to go on."""
    out = place.out
    lines = (
        f"\nAll of it took {steps.elapsed_s:.0f} s.",
        *_activation(),
        "\nWhat is there now:",
        f"  {out / 'report.html'}  curves, calibration, confusions, latencies: open it in a browser",
        f"  {out / 'table.txt'}, {out / 'table.json'}  the table above",
        f"  {out / 'records.sqlite'}  every request; any of them told in words:",
        f"      rheostat explain --last --records {out / 'records.sqlite'}",
        "\nKeep the gateway running and ask it something:",
        f"  rheostat serve {place.config}",
        "  curl -H 'content-type: application/json' -d '{\"data\": \"What a lovely surprise!\"}' \\",
        "    http://127.0.0.1:8080/v1/predict",
        "\nYour own data, your own models: docs/tutorials/your-own-data.md",
    )
    for line in lines:
        steps.show(line)


def _activation() -> tuple[str, ...]:
    """The line without which a shell does not find `rheostat`, where it lies in a virtual environment."""
    if sys.prefix == sys.base_prefix:
        return ()
    script = Path(sys.prefix, "bin", "activate")
    here = Path.cwd()
    return ("\nThe commands below need its environment, once in each shell:",
            f"  . {script.relative_to(here) if script.is_relative_to(here) else script}")  # fmt: skip
