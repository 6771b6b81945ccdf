"""llama.cpp in this process: the engine of its own server, asked from threads, without a network between.

The engine computes `parallel` requests at a time, each in a slot that keeps what it has computed of its last prompt. A
thread belongs to each slot, so that whoever waits for one waits here and can leave. A request is stopped between two tokens,
or between two parts of a prompt. A crash of native code ends the process, and a forked copy of it must end by `os._exit`, as
those of multiprocessing do.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from rheostat.backends.chat_stream import told_error
from rheostat.backends.gguf_socket import answer_tokens, chat_tokens, engine_socket
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
        pages: whether it is asked for the tokens of chats later, and so keeps its socket.

    Raises:
        ValueError: it cannot be opened, or an answer cannot be scored; the message says why.
    """

    def __init__(
        self,
        settings: EngineSettings,
        chat: Sequence[Mapping[str, Any]],
        answers: Sequence[str] = (),
        *,
        pages: bool = False,
    ) -> None:
        self.closed = False
        self._pid = os.getpid()
        self._socket = ExitStack()
        with self._socket:  # llama.cpp insists on one; afterwards it leads nowhere
            self._path = self._socket.enter_context(engine_socket())
            self._server = _served(settings, self._path)
            self.answers = answer_tokens(self._path, chat, answers)
            if pages:
                self._socket = self._socket.pop_all()
        self._entry = threading.Lock()
        self._line: SimpleQueue[Turn[Any] | None] = SimpleQueue()
        self._threads = [
            # None that the interpreter waits for when it ends: it would wait for whole answers.
            threading.Thread(target=_serve, args=(slot, self._line), name=f"gguf-{settings.file.name}", daemon=True)
            for slot in range(settings.parallel)
        ]
        for thread in self._threads:
            thread.start()
        self._at_exit = partial(_close, weakref.ref(self))
        atexit.register(self._at_exit)

    def begin(self, work: Callable[[Turn[T]], T]) -> Turn[T]:
        """Let `work` have a turn as soon as a slot is free.

        Raises:
            ModelError: `unavailable`: the model is closed, or this process is a copy of the one that opened it.
        """
        if os.getpid() != self._pid:
            told = "the process was forked after the model was opened, which llama.cpp does not survive: open it afterwards"
            raise ModelError("unavailable", told)
        turn = Turn(self, work)
        with self._entry:
            if self.closed:
                raise _closed()
            self._line.put(turn)
        return turn

    def tokens(self, chat: Sequence[Mapping[str, Any]], said: str) -> tuple[int, ...]:
        """Return the tokens of a chat and the beginning of its answer; only with `pages`.

        Raises:
            ModelError: `input_refused`: the chat template refuses it.
        """
        try:
            return chat_tokens(self._path, chat, said)
        except ValueError as error:
            raise (_closed() if self.closed else ModelError("input_refused", str(error))) from None

    def ask(self, turn: Turn[Any], body: Mapping[str, Any], hear: Callable[[Chunk], None], *, plain: bool = False) -> None:
        """See `Turn.ask` and `Turn.complete`."""
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
                asked = msgspec.json.encode({**body, "stream": True, "return_progress": True})
                (self._server.handle_completions if plain else self._server.handle_chat_completions)(asked, told)
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
        self._end()
        if os.getpid() == self._pid:
            for thread in self._threads:
                thread.join()
        self._server = None
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_at_exit"):
            self._end()

    def _end(self) -> None:
        if os.getpid() != self._pid:
            if not self.closed:  # freeing it would wait for threads that are not here
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))
            self.closed = True
            return
        atexit.unregister(self._at_exit)
        with self._entry:
            if not self.closed:
                self.closed = True
                for _ in self._threads:
                    self._line.put(None)


class Turn(Generic[T]):
    """One row's turn in a slot: it waits for one, and then does its work there, which may `ask` several times."""

    def __init__(self, engine: Engine, work: Callable[[Turn[T]], T]) -> None:
        self.stopped = False
        self._engine = engine
        self._work = work
        self._slot = -1
        self.future: Future[T] = Future()

    def ask(self, body: Mapping[str, Any], hear: Callable[[Chunk], None]) -> None:
        """Ask for a chat completion; `hear` gets its chunks, and may raise to end it.

        Raises:
            ModelError: the engine refused it, or it was stopped.
        """
        self._engine.ask(self, {**body, "id_slot": self._slot}, hear)

    def complete(self, body: Mapping[str, Any], hear: Callable[[Chunk], None]) -> None:
        """Ask for a completion of a prompt; as `ask`."""
        self._engine.ask(self, {**body, "id_slot": self._slot}, hear, plain=True)

    def stop(self) -> None:
        """End it soon: work that has not begun never does, and a computation stops after the next token."""
        self.stopped = True
        self.future.cancel()

    def run(self, slot: int) -> None:
        """Do the work in this slot."""
        if not self.future.set_running_or_notify_cancel():
            return
        self._slot = slot
        try:
            self.future.set_result(self._work(self))
        except BaseException as error:  # whoever waits for it hears of it
            self.future.set_exception(error)


def _serve(slot: int, line: SimpleQueue[Turn[Any] | None]) -> None:
    while (turn := line.get()) is not None:
        turn.run(slot)
        del turn  # or the engine would be kept until the next one comes


def _close(engine: weakref.ref[Engine]) -> None:
    if (alive := engine()) is not None:
        alive.close()


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
    params.verbosity = -1  # it would write of every request that it refuses
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        told = "llama.cpp cannot open it: this version may not know its architecture, or the chat template has a mistake"
        raise ValueError(f"{told} ({error})") from None


def _refused(said: Chunk) -> ModelError:
    """Say what an error of the engine means, as where it comes over HTTP."""
    message = said["error"].get("message") if isinstance(said["error"], Mapping) else said["error"]
    return ModelError(told_error(said).kind, f"llama.cpp: {str(message)[:300]}")


def _closed() -> ModelError:
    return ModelError("unavailable", "the model is closed")
