"""llama.cpp in this process: the engine of its own server, asked from threads, without a network between.

The engine computes `parallel` requests at a time, each in a slot that keeps what it has computed of its last prompt. A
thread belongs to each slot, so that whoever waits for one waits here and can leave. A request is stopped between two tokens,
or between two parts of a prompt.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from rheostat.backends.chat_stream import told_error
from rheostat.backends.gguf_socket import answer_tokens, engine_socket
from rheostat.errors import ModelError

T = TypeVar("T")
Chunk = Mapping[str, Any]


class EngineSettings(NamedTuple):
    """How llama.cpp is opened: `context` tokens for each of `parallel` requests, prompts in parts of `prompt_batch`."""

    file: Path
    context: int
    parallel: int
    threads: int
    prompt_batch: int
    template: str


class Engine:
    """One model opened by llama.cpp. May be used from any thread of the process that opened it.

    Args:
        chat: one chat as they will be asked, to try the template on.
        answers: texts that may follow it; `answers` holds their tokens.

    Raises:
        ValueError: it cannot be opened, or an answer cannot be scored; the message says why.
    """

    def __init__(self, settings: EngineSettings, chat: Sequence[Mapping[str, Any]], answers: Sequence[str] = ()) -> None:
        self.closed = False
        self._pid = os.getpid()
        with engine_socket() as path:  # llama.cpp insists on one; afterwards it leads nowhere
            self._server = _served(settings, path)
            self.answers = answer_tokens(path, chat, answers)
        self.threads = ThreadPoolExecutor(settings.parallel, thread_name_prefix=f"gguf-{settings.file.name}")
        self.slots: SimpleQueue[int] = SimpleQueue()
        for slot in range(settings.parallel):
            self.slots.put(slot)

    def begin(self, work: Callable[[Turn[T]], T]) -> Turn[T]:
        """Let `work` have a turn as soon as a slot is free.

        Raises:
            ModelError: `unavailable`: the model is closed, or this process is a copy of the one that opened it.
        """
        if os.getpid() != self._pid:
            told = "the process was forked after the model was opened, which llama.cpp does not survive: open it afterwards"
            raise ModelError("unavailable", told)
        try:
            if not self.closed:
                return Turn(self, work)
        except RuntimeError:  # its threads have ended since
            pass
        raise _closed()

    def ask(self, turn: Turn[Any], body: Mapping[str, Any], hear: Callable[[Chunk], None]) -> None:
        """See `Turn.ask`."""
        failure: list[BaseException] = []

        def told(data: bytes) -> bool:
            if turn.stopped or self.closed:
                return True
            try:
                said = msgspec.json.decode(data)
                if "error" in said:
                    raise _refused(said)
                hear(said)
            except BaseException as error:  # it has to leave native code first
                failure.append(error)
                return True
            return False

        try:
            if not turn.stopped and not self.closed:
                asked = {**body, "stream": True, "return_progress": True}
                self._server.handle_chat_completions(msgspec.json.encode(asked), told)
        except ValueError as error:
            raise ModelError("input_refused", f"llama.cpp refuses the request: {error}") from None
        except RuntimeError as error:
            raise ModelError("upstream_error", f"llama.cpp failed: {error}") from None
        if self.closed:
            raise _closed()
        if turn.stopped:
            raise ModelError("cancelled", "nobody waits for the answer any more")
        if failure:
            raise failure[0]

    def close(self) -> None:
        """Stop what runs, and free the memory; returns when that is done."""
        self.closed = True
        if os.getpid() == self._pid:
            self.threads.shutdown(wait=True)
        self._let_go()

    def __del__(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        server = getattr(self, "_server", None)
        if server is not None and os.getpid() != self._pid:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))  # freeing it here would wait for threads that are not here
        self._server = None


class Turn(Generic[T]):
    """One row's turn in a slot: it waits for one, and then does its work there, which may `ask` several times."""

    def __init__(self, engine: Engine, work: Callable[[Turn[T]], T]) -> None:
        self.stopped = False
        self._engine = engine
        self._work = work
        self._slot = -1
        self.future: Future[T] = engine.threads.submit(self._run)

    def ask(self, body: Mapping[str, Any], hear: Callable[[Chunk], None]) -> None:
        """Ask for a chat completion; `hear` gets its chunks, and may raise to end it.

        Raises:
            ModelError: the engine refused it, or it was stopped.
        """
        self._engine.ask(self, {**body, "id_slot": self._slot}, hear)

    def stop(self) -> None:
        """End it soon: work that has not begun never does, and a computation stops after the next token."""
        self.stopped = True
        self.future.cancel()

    def _run(self) -> T:
        self._slot = self._engine.slots.get()
        try:
            return self._work(self)
        finally:
            self._engine.slots.put(self._slot)


def _served(settings: EngineSettings, path: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(settings.file)
    params.n_ctx, params.n_parallel = settings.context * settings.parallel, settings.parallel
    params.n_batch = params.n_ubatch = settings.prompt_batch
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.chat_template = settings.template
    params.hostnames, params.n_threads_http, params.ui, params.endpoint_slots = [path], 1, False, False
    params.endpoint_metrics = True
    params.fit_params = params.warmup = False  # the context is what the config says, and the contract check warms up
    params.cache_ram_mib = 0  # prompts of the past would be kept beside the slots, 8 GiB of them
    params.verbosity = -1
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"llama.cpp cannot open it ({error})") from None


def _refused(said: Chunk) -> ModelError:
    """Say what an error of the engine means, as where it comes over HTTP."""
    message = said["error"].get("message") if isinstance(said["error"], Mapping) else said["error"]
    return ModelError(told_error(said).kind, f"llama.cpp: {str(message)[:300]}")


def _closed() -> ModelError:
    return ModelError("unavailable", "the model is closed")
