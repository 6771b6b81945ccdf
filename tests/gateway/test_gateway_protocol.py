"""Where a message ends, how large its head may be, and how long a client may take."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import pytest
from gateway_wire import ask, dial, raw, read_all, until

from rheostat.gateway.handle import ServerHandle

SECOND = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def post(head: bytes, body: bytes = b"0\r\n\r\n", version: bytes = b"1.1") -> bytes:
    return b"POST /v1/predict HTTP/" + version + b"\r\nHost: x\r\n" + head + b"\r\n" + body + SECOND


AMBIGUOUS = {
    "both lengths": post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
    "both lengths, the other way round": post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
    "two lengths": post(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"hello"),
    "a list of lengths": post(b"Content-Length: 5, 5\r\n", b"hello"),
    "chunked, identity": post(b"Transfer-Encoding: chunked, identity\r\n"),
    "gzip, chunked": post(b"Transfer-Encoding: gzip, chunked\r\n"),
    "identity": post(b"Transfer-Encoding: identity\r\n"),
    "chunked and identity": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
    "xchunked": post(b"Transfer-Encoding: xchunked\r\n"),
    "space before the colon": post(b"Content-Length : 5\r\n", b"hello"),
    "space before the other colon": post(b"Transfer-Encoding : chunked\r\n"),
    "bare line feed after a chunk size": post(b"Transfer-Encoding: chunked\r\n", b"5\nhello\r\n0\r\n\r\n"),
    "bare line feed after a chunk": post(b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\n0\n\n"),
    "bare line feeds in the head": b"GET /v1/models HTTP/1.1\nHost: x\n\n" + SECOND,
    "negative length": post(b"Content-Length: -5\r\n", b"hello"),
    "length with a sign": post(b"Content-Length: +5\r\n", b"hello"),
    "hexadecimal length": post(b"Content-Length: 0x5\r\n", b"hello"),
    "negative chunk": post(b"Transfer-Encoding: chunked\r\n", b"-5\r\nhello\r\n0\r\n\r\n"),
    "a chunk without end": post(b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffffff\r\nhello"),
    "folded header": post(b"X-A: b\r\n Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
    "NUL in a header": post(b"X-A: b\0c\r\nContent-Length: 5\r\n", b"hello"),
    "chunks in HTTP/1.0": post(b"Transfer-Encoding: chunked\r\n", version=b"1.0"),
    "HTTP/2.0 in words": post(b"Content-Length: 5\r\n", b"hello", version=b"2.0"),
    "no version": b"GET /v1/models\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n" + SECOND,
    "two hosts": b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + SECOND,
    "an upgrade": post(b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n", b"hello"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("message", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_an_ambiguous_message_is_refused_and_the_connection_closed(gateway: ServerHandle, message: bytes) -> None:
    got = raw(gateway.url, message)
    assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"connection: close\r\n" in got
    answer = json.loads(got.split(b"\r\n\r\n", 1)[1])
    assert answer["error"]["code"] == 400
    assert answer["error"]["type"] == "invalid_request"


def test_a_false_length_ends_the_connection(gateway: ServerHandle) -> None:
    body = b'{"data": "a"} and more than was said'
    got = raw(gateway.url, b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n" + body)
    assert got.count(b"HTTP/1.1 200") <= 1
    assert b"output" not in got.split(b'"output":"a"')[-1]
    assert ask(gateway.url, body={"data": "a"}).status == 200


def test_garbage_after_a_good_request_does_not_harm_it(gateway: ServerHandle) -> None:
    body = b'{"data": "good"}'
    head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    got = raw(gateway.url, head + body + b"\x00\x01 not http \r\n\r\n" + SECOND)
    assert got.count(b"HTTP/1.1 ") == 1
    assert b'"output":"good"' in got


def test_chunks_are_put_together(gateway: ServerHandle) -> None:
    chunks = b'7;x=y\r\n{"data"\r\n8\r\n: "abc"}\r\n0\r\nX-Trailer: 1\r\n\r\n'
    head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    got = raw(gateway.url, head + chunks)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert b'"output":"abc"' in got


def test_http_1_0_is_answered_and_closed(gateway: ServerHandle) -> None:
    got = raw(gateway.url, b"GET /health/live HTTP/1.0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in got


def test_a_client_that_asks_before_it_sends(gateway: ServerHandle) -> None:
    with dial(gateway.url) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 13\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"data": "a"}')
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_too_large_a_declared_body_is_never_asked_for(gateway: ServerHandle) -> None:
    with dial(gateway.url) as connection:
        head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        connection.sendall(head + b"Content-Length: 5000000\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


MANY = b"x" * 6_000_000


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 6000000\r\n", b"413"),
        (b"Content-Length: 6000000\r\nConnection: close\r\n", b"413"),
        (b"Content-Length: 10\r\n", b"400"),
        (b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n", b"400"),
    ],
)
def test_a_client_that_reads_after_it_has_sent_everything_gets_the_refusal(
    gateway: ServerHandle, head: bytes, status: bytes
) -> None:
    with dial(gateway.url) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n" + MANY)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 " + status)
    assert ask(gateway.url, body={"data": "a"}).status == 200


def test_who_sends_on_after_a_refusal_is_cut_off(gateway: ServerHandle) -> None:
    with dial(gateway.url, 60.0) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\nConnection: close\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(MANY * 16)


def test_who_only_keeps_the_connection_after_a_refusal_is_cut_off_in_time(
    gateway: ServerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rheostat.gateway.protocol.LINGER_S", 0.3)
    with dial(gateway.url) as connection:
        connection.sendall(b"this is no HTTP\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 400 ")
        until(lambda: is_cut(connection))


def is_cut(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


@pytest.mark.parametrize("filler", [b"X-A: " + b"a" * 100_000, b"X-B: b\r\n" * 20_000])
def test_a_large_head_is_refused(gateway: ServerHandle, filler: bytes) -> None:
    with dial(gateway.url) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n")
        try:
            for start in range(0, len(filler), 5000):
                connection.sendall(filler[start : start + 5000])
                time.sleep(0.001)
        except (BrokenPipeError, ConnectionResetError):
            pass
        got = read_all(connection)
    assert got == b"" or got.startswith(b"HTTP/1.1 431 ")
    assert ask(gateway.url, "/health/live").status == 200


def test_a_large_head_in_one_piece_is_refused(gateway: ServerHandle) -> None:
    pieces = (b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 60_000, b"a" * 10_000 + b"\r\n\r\n")
    assert raw(gateway.url, b"".join(pieces)).startswith(b"HTTP/1.1 431 ")
    with dial(gateway.url) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.05)
        assert read_all(connection).startswith(b"HTTP/1.1 431 ")
    body = json.dumps({"data": "a", "meta": {"long": "b" * 15_000}}).encode()
    many = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    last = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert raw(gateway.url, many * 8 + last).count(b"HTTP/1.1 200 ") == 9  # much at once, but no large head


@pytest.fixture
def hasty(start: Callable[[str], ServerHandle]) -> ServerHandle:
    return start("server: {header_timeout: 300ms, body_timeout: 300ms}\n")


def test_a_connection_that_says_nothing_is_closed(hasty: ServerHandle) -> None:
    assert raw(hasty.url) == b""


def test_a_head_that_never_ends_is_closed(hasty: ServerHandle) -> None:
    got = raw(hasty.url, b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert got.startswith(b"HTTP/1.1 408 ")


def dripped(sock: socket.socket, first: bytes, drop: bytes) -> bytes:
    """Send a byte now and then, which must not win any time, until the server closes."""
    sock.sendall(first)
    sock.settimeout(0.05)
    got = b""
    for _ in range(200):
        try:
            part = sock.recv(65_536)
            if not part:
                return got
            got += part
        except TimeoutError:
            try:
                sock.sendall(drop)
            except (BrokenPipeError, ConnectionResetError):
                return got
        except ConnectionResetError:
            return got
    raise AssertionError("the connection was never closed")


def test_a_dripping_head_wins_no_time(hasty: ServerHandle) -> None:
    with dial(hasty.url) as connection:
        assert dripped(connection, b"GET /health/live HTTP/1.1\r\nX-A: ", b"a").startswith(b"HTTP/1.1 408 ")


def test_a_dripping_head_on_a_used_connection_wins_no_time(hasty: ServerHandle) -> None:
    with dial(hasty.url) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert dripped(connection, b"GET /health/live HTTP/1.1\r\nX-A: ", b"a").startswith(b"HTTP/1.1 408 ")


def test_empty_lines_win_no_time(hasty: ServerHandle) -> None:
    with dial(hasty.url) as connection:
        assert dripped(connection, b"\r\n", b"\r\n") == b""


def test_a_dripping_body_wins_no_time(hasty: ServerHandle) -> None:
    first = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    with dial(hasty.url) as connection:
        assert dripped(connection, first, b" ").startswith(b"HTTP/1.1 408 ")
    assert hasty.server.gateway.active == 0
    assert hasty.server.router.engine.in_flight == 0


def test_waiting_for_an_answer_and_between_requests_is_not_slowness(hasty: ServerHandle) -> None:
    body = b'{"data": {"s": 0.8}, "route": {"name": "slow"}}'
    with dial(hasty.url) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        time.sleep(0.5)
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_good_clients_are_served_beside_many_slow_ones(hasty: ServerHandle) -> None:
    slow = [dial(hasty.url) for _ in range(60)]
    try:
        for number, connection in enumerate(slow):
            if number % 3:
                connection.sendall(b"POST /v1/predict HTTP/1.1\r\n")
        for _ in range(5):
            assert ask(hasty.url, body={"data": "a"}).status == 200
        for connection in slow:
            read_all(connection)
    finally:
        for connection in slow:
            connection.close()
    assert ask(hasty.url, body={"data": "a"}).status == 200
