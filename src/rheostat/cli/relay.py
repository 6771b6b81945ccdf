"""`rheostat relay`: two models in turns within one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rheostat.cli.console import note, progress, say, say_table, told

app = typer.Typer(help="Two models in turns within one answer.", no_args_is_help=True)


@app.callback()
def _relay() -> None:
    """Two models in turns within one answer."""


@app.command()
@told
def calibrate(
    texts: Annotated[str, typer.Argument(help="A file of questions, one a line, as users ask.", metavar="QUESTIONS")],
    strong: Annotated[str, typer.Option(help="The model that leads.")],
    small: Annotated[str, typer.Option(help="The model that writes the easy segments.")],
    config: Annotated[str, typer.Option(help="The config that has both.")] = "rheostat.yaml",
    at: Annotated[str, typer.Option(help="What a segment is: sentence, line or block.")] = "sentence",
    share: Annotated[float, typer.Option(help="Its share of the segments, at most.", min=0, max=1)] = 0.3,
    tokens: Annotated[int, typer.Option(help="Tokens of each answer.", min=16)] = 192,
    out: Annotated[str, typer.Option(help="Where the cues go.")] = "cues.json",
    picture: Annotated[str | None, typer.Option("--plot", help="Draw the cues into this PNG.")] = None,
) -> None:
    """Learn which beginnings of segments say that the small model can write the rest.

    The strong model answers the questions. Behind every cue in its answers the small model goes on, and how far ahead its
    likeliest tokens were is measured. Cues are chosen on half of the questions and judged on the others.

    Example: `rheostat relay calibrate questions.txt --strong large --small fast --out cues.json --plot cues.png`
    """
    import asyncio
    from typing import get_args

    from rheostat.config import load_config
    from rheostat.jobs.cues import measure_cues
    from rheostat.lab.cues import choose, plot
    from rheostat.segments.borders import Segment
    from rheostat.segments.cues import save_cues

    if at not in get_args(Segment):
        raise typer.BadParameter(f"--at is one of {', '.join(get_args(Segment))}, got {at!r}")
    questions = [line.strip() for line in Path(texts).read_text(encoding="utf-8").splitlines() if line.strip()]
    loaded = load_config(config)
    kind: Segment = at  # type: ignore[assignment]
    with progress("questions") as step:
        passages = asyncio.run(
            measure_cues(loaded, questions, strong=strong, small=small, at=kind, tokens=tokens, progress=step)
        )
    models = loaded.config.models
    found = choose(passages, share, kind, (strong, models[strong].version), (small, models[small].version))
    say(f"{found.passages} segments in the answers to {len(questions)} questions; chosen on one half, judged on the other\n")
    rows = [
        (
            cue.cue, str(cue.count), f"{cue.margin:.2f}", "" if cue.held is None else f"{cue.held:.2f}",
            f"{cue.own_margin:.2f}", "yes" if cue.chosen else "",
        )
        for cue in found.cues.cues if cue.count > 1 or cue.chosen
    ]  # fmt: skip
    say_table(("cue", "seen", "margin", "elsewhere", "strong's own", "chosen"), rows)
    say(f"\non the other half the chosen cues begin {found.share:.0%} of the segments")
    say(f"  mean margin of {small} there      {found.margin:.3f}, without such a cue {found.margin_else:.3f}")
    say(f"  writes what {strong} writes there {found.same:.0%}, without such a cue {found.same_else:.0%}")
    if not found.cues.chosen:
        note(f"no cue is chosen: behind none was {small} surer than on average; give more questions, or another model")
        raise typer.Exit(1)
    if not found.margin > found.margin_else:
        note("the cues do not hold on the other half: better leave the strong model alone, or give more questions")
    save_cues(found.cues, Path(out))
    say(f"written to {out}; in the config: {{backend: relay, strong: {strong}, small: {small}, cues: {out}}}")
    if picture is not None:
        plot(found.cues, Path(picture))
        say(f"drawn to {picture}")
