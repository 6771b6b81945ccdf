"""The parser says the same for every cut of the bytes, and a cut answer is never a whole one."""

from __future__ import annotations

import gzip
import itertools
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.wire.answer import MAX_HEAD, AnswerParser
from rheostat.wire.failures import BrokenOff, TooLargeAnswer, WireError

BODY = '{"said": "模型😀"}'.encode()
Read = tuple[int, bytes, bool, bool]


def read(stream: bytes, cuts: list[int], *, end: bool = False, largest: int = 1 << 20) -> Read:
    """Return status, body, whether it is complete, and whether the connection may be used again."""
    parser = AnswerParser()
    parser.clear(largest)
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    for low, high in itertools.pairwise(edges):
        if low < high:
            parser.feed(stream[low:high])
    if end:
        parser.end()
    return parser.status, parser.take(), parser.complete, parser.reusable


def sized(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)


def chunked(parts: list[bytes], more: bytes = b"", trailer: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % more
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n%b\r\n" % trailer


FORMS = {
    "sized": sized(BODY),
    "chunked": chunked([BODY[:5], BODY[5:6], BODY[6:]], trailer=b"x-checked: yes\r\n"),
    "after interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + sized(BODY),
    "gzip": sized(gzip.compress(BODY), b"content-encoding: gzip\r\n"),
    "deflate": chunked([zlib.compress(BODY)], b"content-encoding: deflate\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_single_cut_and_every_byte_by_itself(form: str) -> None:
    stream = FORMS[form]
    whole = (200, BODY, True, True)
    assert read(stream, []) == whole
    assert read(stream, list(range(len(stream)))) == whole
    for cut in range(len(stream)):
        assert read(stream, [cut]) == whole


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_is_cut_short_anywhere_is_a_failure(form: str) -> None:
    stream = FORMS[form]
    for length in range(len(stream)):
        with pytest.raises(BrokenOff):
            read(stream[:length], [], end=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 10_000), max_size=30), st.booleans())
def test_any_body_any_cuts(parts: list[bytes], cuts: list[int], in_chunks: bool) -> None:
    body = b"".join(parts)
    stream = chunked(parts) if in_chunks else sized(body)
    assert read(stream, cuts) == (200, body, True, True)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=10))
def test_garbage_never_is_an_answer(garbage: bytes, cuts: list[int]) -> None:
    try:
        status, _, complete, _ = read(garbage, cuts, end=True)
    except WireError:
        return
    assert complete
    assert garbage.lstrip(b"\r\n").startswith(b"HTTP/1.")
    assert status >= 200


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=60), st.lists(st.integers(0, 10_000), max_size=10))
def test_what_follows_an_answer_changes_nothing_and_ends_the_connection(behind: bytes, cuts: list[int]) -> None:
    status, body, complete, reusable = read(sized(BODY) + behind, cuts)
    assert (status, body, complete) == (200, BODY, True)
    assert not reusable or not behind.strip(b"\r\n")
    assert read(sized(BODY) + sized(b"another"), cuts)[:3] == (200, BODY, True)
    assert not read(sized(BODY) + sized(b"another"), cuts)[3]


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    assert read(b"HTTP/1.1 200 OK\r\n\r\nall of it", [3, 20], end=True) == (200, b"all of it", True, False)
    assert read(b"HTTP/1.0 200 OK\r\n\r\n", [], end=True) == (200, b"", True, False)


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body(status: int) -> None:
    stream = b"HTTP/1.1 %d Nothing\r\ncontent-length: 5\r\n\r\n" % status
    assert read(stream, [4]) == (status, b"", True, True)


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 30,
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhim",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_what_is_refused(stream: bytes) -> None:
    with pytest.raises(BrokenOff):
        read(stream, [], end=True)


def test_sizes_have_bounds() -> None:
    for stream in (
        sized(b"x" * 101),
        chunked([b"x" * 60, b"x" * 60]),
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n",
        sized(gzip.compress(b"x" * 101), b"content-encoding: gzip\r\n"),
    ):
        with pytest.raises(TooLargeAnswer):
            read(stream, [], largest=100)
    with pytest.raises(TooLargeAnswer):
        read(b"HTTP/1.1 200 OK\r\n" + b"x-filler: y\r\n" * 10_000, list(range(0, 130_000, 1000)))
    with pytest.raises(TooLargeAnswer):
        read(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 2 * MAX_HEAD,
            list(range(0, 130_000, 999)),
        )


def test_a_connection_that_is_to_close_is_not_used_again() -> None:
    assert read(sized(BODY, b"connection: close\r\n"), []) == (200, BODY, True, False)
    assert not read(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", [])[3]
