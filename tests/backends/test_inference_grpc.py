"""What gRPC's UNAVAILABLE means: a server that says so itself, a connection that ended, one that never was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.errors import ModelError
from rheostat.tensors.messages import SERVICE

grpc = pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")


class Server:
    """Refuses every call; the second time by hanging, so that it can be stopped under a call."""

    def __init__(self, details: str, trailing: tuple[tuple[str, str], ...] = ()) -> None:
        self.details, self.trailing, self.hangs = details, trailing, False
        self.server: Any = None
        self.port = 0

    async def start(self) -> None:
        async def metadata(_: bytes, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such call")
            return b""

        async def infer(_: bytes, context: Any) -> bytes:
            if self.hangs:
                await asyncio.sleep(30)
            await context.abort(grpc.StatusCode.UNAVAILABLE, self.details, self.trailing)
            return b""

        self.server = grpc.aio.server()
        handlers = {"ModelMetadata": metadata, "ModelInfer": infer}
        rows = {name: grpc.unary_unary_rpc_method_handler(each) for name, each in handlers.items()}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, rows),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()


def asked(server: Server, *, stop: bool = False, cut: bool = False) -> ModelError:
    """Ask a model of the server: as it is, after its stop, or with its stop under the call."""

    async def go() -> ModelError:
        await server.start()
        settings = InferenceModel(
            base_url=f"grpc://127.0.0.1:{server.port}", model="k", input=InputTensor(name="T"), output="P", labels=("a", "b")
        )
        backend = settings.open("")
        try:
            if stop:
                await server.server.stop(0)
            server.hangs = cut
            call = asyncio.ensure_future(backend.apredict(["a"], 5.0))
            if cut:
                await asyncio.sleep(0.3)
                await server.server.stop(0)
            (reply,) = await call
        except ModelError as error:
            reply = error
        finally:
            await backend.aclose()  # type: ignore[attr-defined]
            await server.server.stop(0)
        assert isinstance(reply, ModelError)
        return reply

    return asyncio.run(go())


def test_a_server_that_says_that_it_is_not_available_has_answered() -> None:
    error = asked(Server("no model could answer (odd: crashed)", (("grpc-retry-pushback-ms", "1500"),)))
    assert (error.kind, error.upstream_status, error.retry_after_s) == ("upstream_error", 503, 1.5)


def test_a_server_that_is_not_there_was_never_asked() -> None:
    assert asked(Server("busy"), stop=True).kind == "connection"


def test_a_server_that_stops_under_a_call_leaves_its_result_unknown() -> None:
    assert asked(Server("busy"), cut=True).kind == "reset"


@pytest.mark.parametrize("details", ["", "Socket closed", "Stream removed (GOAWAY received; Error code: 0; Debug Text: )"])
def test_the_librarys_own_words_for_a_lost_connection_are_no_answer(details: str) -> None:
    assert asked(Server(details)).kind == "reset"
