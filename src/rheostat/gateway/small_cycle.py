"""A small request on its way through the protocol: read whole, then answered without ASGI in between."""

from __future__ import annotations

from asyncio import Task

MOST_BYTES = 65_536
"""The largest body that is taken this way; a larger one is read through ASGI, which slows a client down that sends faster
than it is read."""


class SmallCycle:
    """Stands where uvicorn has a RequestResponseCycle, and has the attributes of it that a protocol reads."""

    __slots__ = (
        "body", "disconnected", "headers", "keep_alive", "more_body", "queued", "response_complete", "response_started",
        "target", "task", "version",
    )  # fmt: skip

    def __init__(self, target: bytes, headers: list[tuple[bytes, bytes]], version: str, keep_alive: bool) -> None:
        self.target = target
        self.headers = headers
        self.version = version
        self.keep_alive = keep_alive
        self.body = b""
        self.more_body = True
        self.queued = False  # behind an earlier request of the same connection
        self.response_started = self.response_complete = self.disconnected = False
        self.task: Task[None] | None = None  # what makes the answer, where that is not done on the spot

    def leave(self) -> None:
        """The client is gone: nobody needs the answer."""
        self.disconnected = True
        if self.task is not None:
            self.task.cancel()
