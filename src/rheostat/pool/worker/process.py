"""The gateway's side of one worker process: started, asked one call at a time, and its end noticed at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec.msgpack import Decoder

from rheostat.errors import ModelError
from rheostat.pool.backend import Reply, Row
from rheostat.pool.worker.arena import Arena
from rheostat.pool.worker.message import HEAD, HEAVY, Reader, Ready, Refused, Writer

MODULE = "rheostat.worker"
OVERDUE_S = 1.0
LEAVE_S = 2.0
"""How long a call that nobody waits for may still take before its process seems to hang; how long a process may take to
end."""
_BUFFER = 1 << 20
Answer = asyncio.Future[list[Reply]]


class Ended(Exception):
    """A worker process that was to become ready did not."""


class Process(asyncio.Protocol):
    """One process. It is started on the event loop's own thread, whose end ends it too (see `limits.die_with`).

    `freed` is called when it has answered and could take the next call.
    """

    def __init__(self, environment: Mapping[str, str], stuck_s: float, freed: Callable[[Process], None]) -> None:
        self.freed = freed
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # how it ended, in words
        self.heavy: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # it holds too much memory
        self.calls = 0
        self.stuck = False
        self.retired = False
        self._ready: asyncio.Future[Ready | Refused] = asyncio.get_running_loop().create_future()
        self.stuck_s = stuck_s
        self._answer: Answer | None = None
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray()
        self._arena = Arena.made()
        self._reader, self._writer = Reader(), Writer(self._arena)
        self._transport: asyncio.WriteTransport | None = None
        self._watched = -1
        self._ours, theirs = socket.socketpair()
        for end in (self._ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        arena = -1 if self._arena is None else self._arena.fd
        given = [theirs.fileno(), *([arena] if self._arena is not None else [])]
        command = [sys.executable, "-P", "-m", MODULE, str(theirs.fileno()), str(arena), str(os.getpid())]
        try:
            self._popen = subprocess.Popen(
                command, pass_fds=given, stdin=subprocess.DEVNULL, env={**os.environ, **environment}
            )
        except OSError:
            self._ours.close()
            self._drop_arena()
            raise
        finally:
            theirs.close()
        self.pid = self._popen.pid
        self._watch()

    async def become_ready(self, hello: Sequence[Any], within_s: float) -> Ready | Refused:
        """Tell it what to open, and return what it says to that.

        Raises:
            Ended: it ended, or said nothing within `within_s` seconds.
        """
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: self, sock=self._ours)
            assert self._transport is not None
            self._transport.write(self._writer.object(hello))
            await asyncio.wait((self._ready, self.ended), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self.end()
            raise
        if self._ready.done():
            return self._ready.result()
        if self.ended.done():
            raise Ended(f"its process {self.ended.result()} before it could answer")
        await self.end()
        raise Ended(f"its process had not loaded the model within {within_s:g} s")

    @property
    def busy(self) -> bool:
        """True while it computes an answer."""
        return self._answer is not None

    @property
    def awaited(self) -> bool:
        """True while it computes an answer that somebody waits for."""
        return self._answer is not None and not self._answer.done()

    @property
    def hangs_for_s(self) -> float | None:
        """The seconds until it will be killed, if it seems to hang: it still computes what its caller gave up, and has for
        more than OVERDUE_S seconds. None when it does not."""
        if self._answer is None or not self._answer.done():
            return None
        gone = asyncio.get_running_loop().time() - self._began
        return max(0.0, self.stuck_s - gone) if gone >= OVERDUE_S else None

    @property
    def alive(self) -> bool:
        """True until its end was noticed, or it was told to end."""
        return not self.ended.done() and not self.retired and self._transport is not None

    def ask(self, rows: Sequence[Row], answer: Answer) -> None:
        """Send rows; the answer is set when it comes, `crashed` when the process ends before, `timeout` when it hangs."""
        assert self._transport is not None
        assert self._answer is None
        self._transport.write(self._writer.rows(rows))
        self.calls += 1
        self._answer = answer
        self._began = asyncio.get_running_loop().time()
        self._timer = asyncio.get_running_loop().call_later(self.stuck_s, self._is_stuck)

    def retire(self) -> None:
        """Let it end, as soon as it has answered what it was asked."""
        self.retired = True
        if self._answer is None and self._transport is not None:
            self._transport.close()

    def kill(self) -> None:
        """End it now; harmless when it has ended."""
        self.retired = True
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self._transport is not None:
            self._transport.close()
        else:
            self._ours.close()

    async def end(self) -> None:
        """End it now, and wait until it has; nobody waits longer than 2 seconds for the system."""
        self.kill()
        await asyncio.wait((self.ended,), timeout=LEAVE_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the line to it."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a part of a message."""
        received = self._received
        received += data
        if len(received) < HEAD.size:
            return
        length, flags = HEAD.unpack_from(received)
        if len(received) < HEAD.size + length:
            return
        body, self._received = bytes(received[HEAD.size : HEAD.size + length]), bytearray()
        if not self._ready.done():
            self._ready.set_result(Decoder(Ready | Refused).decode(body))
        else:
            self._answered(flags, body)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        """It hung up, so it is ending or of no use."""
        if not self.retired:
            self.kill()
        if self._watched < 0:
            self._reap()

    def _answered(self, flags: int, body: bytes) -> None:
        answer, self._answer = self._answer, None
        if self._timer is not None:
            self._timer.cancel()
        if answer is not None and not answer.done():
            try:
                answer.set_result(self._reader.replies(flags, body))
            except ModelError as error:
                answer.set_exception(error)
        if flags & HEAVY and not self.heavy.done():
            self.heavy.set_result(None)
        if self.retired:
            self.retire()
        else:
            self.freed(self)

    def _is_stuck(self) -> None:
        self.stuck = True
        self.kill()

    def _watch(self) -> None:
        """Have the loop say when the process is gone, whoever else holds its end of the line."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._watched = os.pidfd_open(self.pid)
                asyncio.get_running_loop().add_reader(self._watched, self._reap)

    def _reap(self) -> None:
        if self._watched >= 0:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = -1
        if self.ended.done():
            return
        code = self._popen.wait()  # it is gone already: this only takes its status
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        if self.stuck:
            how = f"did not answer within {self.stuck_s:g} s and was killed"
        self.ended.set_result(how)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(ModelError("timeout" if self.stuck else "crashed", f"process {self.pid} {how}"))
        self._drop_arena()

    def _drop_arena(self) -> None:
        if self._arena is not None:
            self._arena.close()
            self._arena = None
