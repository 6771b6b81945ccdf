"""The service's own log: stdlib logging, masked, and never in the way of a request."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from rheostat.telemetry.lane import Lane, SinkStats, Waiting
from rheostat.telemetry.mask import Masker
from rheostat.telemetry.text import Tamer, escape_invisible, plain, visible

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_MAX_LINES = 10_000
_MAX_BYTES = 16 * 1024 * 1024


class EcsFormatter(logging.Formatter):
    """One line of JSON per log record, in ECS form; what was given as `extra` stands under `rheostat`."""

    def __init__(self, masker: Masker, service: str = "rheostat") -> None:
        super().__init__()
        self._mask = masker.mask
        self._service = service
        self._encode = msgspec.json.Encoder(enc_hook=plain).encode

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        tamer = Tamer(mask=self._mask)
        row: dict[str, Any] = {
            "@timestamp": datetime.fromtimestamp(record.created, UTC),
            "log": {"level": record.levelname.lower(), "logger": record.name},
            "message": tamer.text(_message(record)),
            "service": {"name": self._service},
            "process": {"pid": record.process or 0, "thread": {"name": record.threadName or ""}},
        }
        if record.exc_info and record.exc_info[0] is not None:
            row["error"] = {
                "type": record.exc_info[0].__name__,
                "message": tamer.text(str(record.exc_info[1])),
                "stack_trace": tamer.text(self.formatException(record.exc_info)),
            }
        extra = _extra(record)
        if extra:
            row["rheostat"] = tamer.value(extra)
        return escape_invisible(self._encode(row)).decode()


class PlainFormatter(logging.Formatter):
    """Time, level, logger and message for a person at a terminal; an exception follows, indented."""

    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self._mask = masker.mask

    def format(self, record: logging.LogRecord) -> str:
        """Return the text, without its end; text from outside cannot start a line or speak to the terminal."""
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        message = self._safe(_message(record)).replace("\r", "␍").replace("\n", "\n  ")
        text = f"{at} {record.levelname.lower():<8}{record.name}: {message}"
        for name, value in _extra(record).items():
            text += f" {name}={self._safe(str(value))!r}"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n  " + self._safe(self.formatException(record.exc_info)).replace("\n", "\n  ")
        return text

    def _safe(self, text: str) -> str:
        return visible(self._mask(text))


class _Line(Waiting):
    text: str


class LaneHandler(logging.Handler):
    """Hands formatted lines to a background writer: a stream that nobody reads costs lines, which are counted, not time."""

    def __init__(self, stream: TextIO, flush_s: float = 0.05) -> None:
        super().__init__()
        self._stream = stream
        self._lane: Lane[_Line] = Lane(
            "log", self._write, stream.flush, max_entries=_MAX_LINES, max_bytes=_MAX_BYTES, flush_s=flush_s
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line."""
        try:
            line = self.format(record)
        except Exception:  # a bad argument in one log call must not end a request
            self.handleError(record)
            return
        self._lane.put(_Line(len(line) + 100, line))

    def flush(self) -> None:
        """Wait up to a second for what was logged before to be written."""
        self._lane.mark().wait(1.0)

    def close(self) -> None:
        """Write what is queued (for two seconds at most) and stop."""
        self._lane.shut()
        self._lane.join(2.0)
        super().close()

    def stats(self) -> SinkStats:
        """Return what is queued, written and dropped."""
        return self._lane.stats()

    def _write(self, lines: Sequence[_Line]) -> None:
        self._stream.write("".join([f"{line.text}\n" for line in lines]))
        self._stream.flush()


def configure(
    *,
    level: str = "info",
    form: str = "auto",
    stream: TextIO | None = None,
    masker: Masker | None = None,
    service: str = "rheostat",
    loggers: Sequence[str] = ("",),
) -> Callable[[], None]:
    """Send the log to `stream` (standard error), and return a function that ends this and restores what was before.

    Args:
        level: debug, info, warning, error.
        form: json (ECS), plain, or auto: plain on a terminal, json otherwise.
        masker: removes secrets; without one, only what looks like a credential is removed.
        service: the value of `service.name`.
        loggers: the loggers that write here; "" is the root.

    Raises:
        ValueError: an unknown level or form.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}: use debug, info, warning or error")
    if form not in ("auto", "json", "plain"):
        raise ValueError(f"unknown log form {form!r}: use auto, json or plain")
    stream = stream if stream is not None else sys.stderr
    masker = masker if masker is not None else Masker()
    if form == "auto":
        form = "plain" if stream.isatty() else "json"
    handler = LaneHandler(stream)
    handler.setFormatter(EcsFormatter(masker, service) if form == "json" else PlainFormatter(masker))
    before = []
    for name in loggers:
        logger = logging.getLogger(name)
        before.append((logger, logger.level, list(logger.handlers)))
        logger.setLevel(number)
        logger.handlers[:] = [handler]

    def restore() -> None:
        for logger, old_level, old_handlers in before:
            logger.setLevel(old_level)
            logger.handlers[:] = old_handlers
        handler.close()

    return restore


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # a log call with the wrong number of arguments; the reader wants to see it all the same
        return f"{record.msg} {record.args!r}"


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
