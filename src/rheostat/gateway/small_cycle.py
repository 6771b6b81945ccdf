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
        "target", "task", "tasks", "version",
    )  # fmt: skip

    def __init__(
        self, target: bytes, headers: list[tuple[bytes, bytes]], version: str, keep_alive: bool, tasks: set[Task[None]]
    ) -> None:
        self.target = target
        self.headers = headers
        self.tasks = tasks
        self.version = version
        self.keep_alive = keep_alive
        self.body = b""
        self.more_body = True
        self.queued = False  # behind an earlier request of the same connection
        self.response_started = self.response_complete = self.disconnected = False
        self.task: Task[None] | None = None  # what makes the answer, where that is not done on the spot

    def begin(self, task: Task[None]) -> None:
        """Its answer is made in this task, which is known among the server's `tasks` until it is over."""
        self.task = task
        self.tasks.add(task)

    def over(self) -> None:
        """Its task has done what it can."""
        if self.task is not None:
            self.tasks.discard(self.task)

    def leave(self) -> None:
        """The client is gone: nobody needs the answer."""
        self.disconnected = True
        if self.task is not None:
            self.task.cancel()
            self.tasks.discard(self.task)  # it may not even have begun
