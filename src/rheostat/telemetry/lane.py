"""One queue and one thread between whoever reports something and the place where it is stored."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Generic, TypeVar

from msgspec import Struct

from rheostat.clock import Clock, SystemClock

_BATCH = 128  # entries written together as long as no more wait
_MOST_BYTES = 8 * 1024 * 1024  # a batch of huge entries is small, for a store needs memory of its own for each of them
_TRIES = 5  # of a batch that fails for another reason than the store being down
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
_REPORT_EVERY_S = 1.0

_log = logging.getLogger("rheostat.telemetry")


class Waiting(Struct, eq=False, gc=False):
    """Something that waits in a lane; `size` is about the memory in bytes that it holds."""

    size: int


class _Marker(Waiting):
    """Says when everything before it is done with."""

    reached: threading.Event


T = TypeVar("T", bound=Waiting)


class SinkStats(Struct, frozen=True):
    """How one sink is doing. Counts since the start; `queued_bytes` is an estimate of memory; `failing` means that the
    last try to write failed; `restarts` counts how often the writer had to be started anew."""

    name: str
    queued: int
    queued_bytes: int
    written: int
    dropped: dict[str, int]
    failing: bool
    last_error: str
    restarts: int


class _Dropped:
    """What was dropped for one reason. Producers only raise `total`, the writer only raises `reported`: no lock."""

    def __init__(self) -> None:
        self.total = 0
        self.reported = 0
        self.first = 0.0
        self.last = 0.0

    def add(self, count: int, wall: float) -> None:
        if self.total == self.reported:
            self.first = wall
        self.last = wall
        self.total += count


class Lane(Generic[T]):
    """Takes entries without ever waiting and hands them to `write` in batches, in order, from one thread.

    A store that fails is tried again with growing pauses: for ever after an OSError, five times after anything else;
    then the batch is written entry by entry and those that fail alone are dropped. What finds no room is dropped.
    Everything dropped is counted by reason (`queue_full`, `sink_error`, `closed`) and logged with its time range once
    writing works.

    Args:
        name: how the sink is called in logs and numbers.
        write: stores a batch; may block or raise.
        finish: gives the store back; called once, from the lane's thread.
        max_entries, max_bytes: bounds of what may wait (a batch being written counts as bytes, not as entries).
        flush_s: longest time in seconds that an entry waits for its batch.
        max_batch: entries written together when many wait, at least 128; what a batch costs by itself is shared by more.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[T]], None],
        finish: Callable[[], None],
        *,
        max_entries: int,
        max_bytes: int,
        flush_s: float,
        max_batch: int = _BATCH,
        clock: Clock | None = None,
        mask: Callable[[str], str] | None = None,
    ) -> None:
        self.name = name
        self._write = write
        self._finish = finish
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._flush_s = flush_s
        self._max_batch = max_batch
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._mask = mask if mask is not None else str
        self._queue: deque[T | _Marker] = deque()
        self._batch: deque[T | _Marker] = deque()
        self._bytes_in = 0  # raised by producers only
        self._bytes_out = 0  # raised by the writer only
        self._wake_at = max(1, max_entries // 2)
        self._written = 0
        self._dropped = {reason: _Dropped() for reason in ("queue_full", "sink_error", "closed")}
        self._failing = False
        self._last_error = ""
        self._restarts = 0
        self._reported_at = -_REPORT_EVERY_S
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._abandoned = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rheostat-{name}", daemon=True)
        self._thread.start()

    def put(self, entry: T) -> None:
        """Queue one entry, or count it as dropped; never waits, never raises."""
        waiting = len(self._queue)
        size = entry.size
        if waiting >= self._max_entries or self._bytes_in - self._bytes_out + size > self._max_bytes:
            reason = "closed" if self._closing.is_set() else "queue_full"
            self._dropped[reason].add(1, self._clock.wall())
            return
        self._queue.append(entry)
        self._bytes_in += size
        if waiting == self._wake_at:
            self._wake.set()

    def mark(self) -> threading.Event:
        """Return an event that is set once everything queued before now is written or dropped."""
        reached = threading.Event()
        self._queue.append(_Marker(0, reached))
        self._wake.set()
        if not self._thread.is_alive():
            reached.set()
        return reached

    def stats(self) -> SinkStats:
        """Return the present numbers."""
        return SinkStats(
            name=self.name,
            queued=len(self._queue) + len(self._batch),
            queued_bytes=max(0, self._bytes_in - self._bytes_out),
            written=self._written,
            dropped={reason: dropped.total for reason, dropped in self._dropped.items()},
            failing=self._failing,
            last_error=self._last_error,
            restarts=self._restarts,
        )

    def shut(self) -> None:
        """Take nothing more and hurry to write what is queued."""
        self._closing.set()
        self._max_entries = 0
        self._wake.set()

    def join(self, timeout_s: float) -> int:
        """Wait at most `timeout_s` seconds for the rest to be written; returns how many entries are lost for good."""
        self._thread.join(max(0.0, timeout_s))
        if self._thread.is_alive():
            self._abandoned.set()
            self._thread.join(0.05)
        left = (*tuple(self._batch), *tuple(self._queue))
        lost = sum(not isinstance(entry, _Marker) for entry in left)
        if lost:
            self._dropped["closed"].add(lost, self._clock.wall())
            self._report("stopped")
        for entry in left:
            if isinstance(entry, _Marker):
                entry.reached.set()
        return lost

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._serve()
                break
            except BaseException as error:  # whatever it was, a thread that died would lose everything after it
                self._restarts += 1
                self._note(error)
                _log.error("%s: the writer failed and goes on: %s", self.name, self._last_error)
                self._pause(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        try:
            self._finish()
        except BaseException as error:
            self._note(error)
            _log.error("%s: could not be closed: %s", self.name, self._last_error)

    def _serve(self) -> None:
        while not self._abandoned.is_set():
            self._wake.wait(self._flush_s)
            self._wake.clear()
            closing = self._closing.is_set()
            while self._take():
                before = self._written
                if not self._deliver():
                    return
                self._settle(wrote=self._written > before)
            if closing and not self._queue:
                return

    def _take(self) -> bool:
        """Move entries from the queue to the batch; what a failed run left there comes first."""
        if self._abandoned.is_set():
            return False
        queue, batch = self._queue, self._batch
        count = min(self._max_batch, max(_BATCH, len(queue))) - len(batch)
        room = _MOST_BYTES
        while queue and count > 0 and room > 0:
            entry = queue.popleft()
            batch.append(entry)
            count -= 1
            room -= entry.size
        return bool(batch)

    def _deliver(self) -> bool:
        """Write the batch, however long it takes; False when told to give up."""
        tries = 0
        pause = _FIRST_PAUSE_S
        while True:
            try:
                entries = [entry for entry in self._batch if not isinstance(entry, _Marker)]
                if entries:
                    self._write(entries)
                self._written += len(entries)
                return True
            except BaseException as error:
                self._failed(error)
                tries = tries + 1 if not isinstance(error, OSError) else 0
            if tries >= _TRIES and self._one_by_one():
                return True
            if self._abandoned.is_set():
                return False
            self._pause(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _one_by_one(self) -> bool:
        """Write each entry alone and drop those that fail; False when the store itself went down meanwhile."""
        while self._batch:
            entry = self._batch[0]
            if isinstance(entry, _Marker):
                entry.reached.set()
            else:
                try:
                    self._write([entry])
                    self._written += 1
                except OSError as error:
                    self._failed(error)
                    return False
                except BaseException as error:
                    self._failed(error)
                    self._dropped["sink_error"].add(1, self._clock.wall())
            self._bytes_out += entry.size
            self._batch.popleft()
        return True

    def _settle(self, *, wrote: bool) -> None:
        """The batch is done with: free its room, answer those who wait for it, say what was dropped."""
        done = tuple(self._batch)
        self._batch.clear()
        self._bytes_out += sum([entry.size for entry in done])
        for marker in [entry for entry in done if isinstance(entry, _Marker)]:
            marker.reached.set()
        now = self._clock.monotonic()
        recovered = wrote and self._failing
        if recovered:
            self._failing = False
        if recovered or (len(self._queue) < self._wake_at and now - self._reported_at >= _REPORT_EVERY_S):
            self._reported_at = now
            self._report("writing again" if recovered else "writing goes on")

    def _report(self, state: str) -> None:
        news = {reason: dropped for reason, dropped in self._dropped.items() if dropped.total > dropped.reported}
        if not news:
            if state == "writing again":
                _log.info("%s: writing again, nothing was dropped", self.name)
            return
        first = min(dropped.first for dropped in news.values())
        last = max(dropped.last for dropped in news.values())
        counts = {reason: dropped.total - dropped.reported for reason, dropped in news.items()}
        for reason, count in counts.items():
            self._dropped[reason].reported += count
        parts = ", ".join(f"{reason} {count}" for reason, count in counts.items())
        _log.warning(
            "%s: %s; %d entries were dropped (%s) between %s and %s",
            self.name, state, sum(counts.values()), parts, _iso(first), _iso(last),
        )  # fmt: skip

    def _failed(self, error: BaseException) -> None:
        self._note(error)
        if not self._failing:
            self._failing = True
            _log.warning("%s: cannot write, will try again: %s", self.name, self._last_error)

    def _note(self, error: BaseException) -> None:
        self._last_error = self._mask(f"{type(error).__name__}: {error}")[:500]

    def _pause(self, seconds: float) -> None:
        if self._closing.is_set():
            self._abandoned.wait(_FIRST_PAUSE_S)
        else:
            self._closing.wait(seconds)


def _iso(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
