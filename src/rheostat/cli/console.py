"""Where output goes: results to standard output, everything else to standard error; errors without a traceback."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import typer

from rheostat.errors import ConfigError, RheostatError

FAILED, WRONG_USE, PARTIAL = 1, 2, 3
"""Exit codes: it could not be done; the command or the config is wrong; done, but not for every row."""

P = ParamSpec("P")
R = TypeVar("R")


def say(text: str = "") -> None:
    """Print a line of the result."""
    sys.stdout.write(_writable(text, sys.stdout.encoding) + "\n")


def note(text: str) -> None:
    """Print a line beside the result."""
    sys.stderr.write(_writable(text, sys.stderr.encoding) + "\n")


def say_json(value: Any) -> None:
    """Print the result as JSON; what JSON does not know (NaN, infinity) becomes null."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
    sys.stdout.write(_writable(text, sys.stdout.encoding) + "\n")


def say_table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print aligned columns: the first to the left, the others to the right."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        say(f"{indent}{'  '.join(cells)}".rstrip())


def told(verb: Callable[P, R]) -> Callable[P, R]:
    """Make a verb end with a message and an exit code, and not with a traceback, on every error that is drawn."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(*args, **kwargs)
        except ConfigError as error:
            note(str(error))
            raise typer.Exit(WRONG_USE) from None
        except BrokenPipeError:  # the reader of our output went away, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except RheostatError as error:
            note(f"{error}")
            raise typer.Exit(FAILED) from None
        except OSError as error:
            note(f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror or error}")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            note("stopped")
            raise typer.Exit(130) from None

    return run


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far a job is, with rate and time left; yields the function to call with (done, all)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        number = bar.add_task(what, total=None)
        shown = -1

        def update(done: int, total: int) -> None:
            nonlocal shown
            bar.update(number, completed=done, total=total)
            tenth = 10 * done // max(total, 1)
            if bar.disable and tenth > shown:
                shown = tenth
                note(f"{what}: {done} of {total}")

        yield update


def _writable(text: str, encoding: str | None) -> str:
    """Text in the terminal's own encoding; what it cannot show is spelt out."""
    kind = encoding or "utf-8"
    return text.encode(kind, "backslashreplace").decode(kind)
