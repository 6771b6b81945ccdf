"""What the person who waits sees: numbered steps with their times, on a terminal and in a plain log alike."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from rich.console import Console
from rich.text import Text

Update = Callable[[int, int], None]
"""Takes how much is done, of how much."""

_INDENT = "    "
_EVERY_S = 5.0  # between two lines of progress in a log


class Steps:
    """Announces the steps of a run and takes their times.

    Args:
        count: how many there will be.
        file: where to write; standard output by default.
    """

    def __init__(self, count: int, file: IO[str] | None = None) -> None:
        self._console = Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False)
        self._count = count
        self._began = time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step; when it ends well, say how long it took."""
        self._console.print(Text(f"\n[{len(self.seconds) + 1}/{self._count}] {title}", style="bold"))
        began = time.monotonic()
        yield
        self.seconds[title] = time.monotonic() - began
        self._console.print(Text(f"    done in {self.seconds[title]:.1f} s", style="dim"))

    def say(self, text: str) -> None:
        """Print a sentence, wrapped under the step's title."""
        wide = max(self._console.width, 40)
        for line in textwrap.wrap(
            self._writable(text), wide - 1, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
        ):
            self.show(line)

    def show(self, line: str = "", style: str = "") -> None:
        """Print a line exactly as it is, such as a row of a table."""
        self._console.print(Text(self._writable(line), style=style), soft_wrap=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Update]:
        """Show a bar on a terminal, now and then a line in a log; yields the function to call."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn(_INDENT + "{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        plain = not self._console.is_terminal
        with Progress(*columns, console=self._console, transient=True, disable=plain) as bar:
            number = bar.add_task(what, total=None)
            told = time.monotonic()

            def update(done: int, total: int) -> None:
                nonlocal told
                bar.update(number, completed=done, total=total)
                if plain and time.monotonic() - told >= _EVERY_S:
                    told = time.monotonic()
                    self.say(f"{what}: {done:,} of {total:,}")

            yield update

    def _writable(self, text: str) -> str:
        """Text in the output's own encoding; what it cannot show is spelt out."""
        return text.encode(self._console.encoding, "backslashreplace").decode(self._console.encoding)
