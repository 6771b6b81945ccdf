"""Memory that the gateway and one worker process share: what is large lies here instead of going through the socket."""

from __future__ import annotations

import mmap
import os

SHARED_FROM = 64 * 1024
"""What is at least so large, in bytes, is put into shared memory; smaller messages go through the socket. Measured
(`bench.workers rows`): at 32 KiB both ways cost the same, at 256 KiB the socket costs an array nine times as much."""
ARENA_BYTES = 256 << 20
"""Room for the rows of one call; pages take memory only once they are used. What does not fit goes through the socket."""
KEPT_BYTES = 16 << 20
"""What a call used beyond this goes back to the system when the next begins."""
_ALIGNED = 64


class Arena:
    """Room for the one call that a worker process has at a time, so it is all free when the next begins."""

    def __init__(self, fd: int, writable: bool) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, ARENA_BYTES, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        self.view = memoryview(self._map)
        self._used = 0

    @classmethod
    def made(cls) -> Arena | None:
        """Make one; None where the system has no such memory."""
        if not hasattr(os, "memfd_create"):
            return None
        fd = os.memfd_create("rheostat-worker", os.MFD_CLOEXEC)
        os.ftruncate(fd, ARENA_BYTES)
        return cls(fd, writable=True)

    def clear(self) -> None:
        """Everything in it is free again."""
        if self._used > KEPT_BYTES:
            self._map.madvise(mmap.MADV_REMOVE, KEPT_BYTES, ARENA_BYTES - KEPT_BYTES)
        self._used = 0

    def put(self, data: memoryview | bytes) -> int | None:
        """Copy `data` (contiguous bytes) in; return where it begins, or None when there is no room."""
        start = -(-self._used // _ALIGNED) * _ALIGNED
        end = start + len(data)
        if end > ARENA_BYTES:
            return None
        self.view[start:end] = data
        self._used = end
        return start

    def close(self) -> None:
        """Give the memory back, as far as this process holds it."""
        os.close(self.fd)
        self.view.release()
        self._map.close()  # it holds another descriptor
