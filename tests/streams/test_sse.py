"""The parser says the same for every cut of the bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.backends.chat_stream import read_chunk
from rheostat.backends.sse import Event, SseParser
from rheostat.errors import ModelError

TEXT = "模型😀"


def read(stream: bytes, cuts: list[int], largest: int = 1 << 20) -> list[Event]:
    parser = SseParser(largest)
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    events = [event for low, high in itertools.pairwise(edges) for event in parser.feed(stream[low:high])]
    return events + parser.end()


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_every_single_cut_and_every_byte_by_itself(end: str) -> None:
    lines = [
        f"data: {TEXT}",
        "",
        ": a comment 模",
        "event: message",
        f"data: {TEXT}",
        f"data:{TEXT}",
        "id: 7",
        "",
        "data",
        "",
        "",
    ]
    stream = ("\ufeff" + end.join(lines)).encode()
    expected = [Event(TEXT.encode()), Event(f"{TEXT}\n{TEXT}".encode(), b"message"), Event(b"")]
    assert read(stream, []) == expected
    assert read(stream, list(range(len(stream)))) == expected
    for cut in range(len(stream)):
        assert read(stream, [cut]) == expected


LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=20)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(LINES, min_size=1, max_size=4), max_size=6),
    st.lists(st.sampled_from(["\r\n", "\n", "\r"]), min_size=1, max_size=40),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_any_events_any_line_ends_any_cuts(events: list[list[str]], ends: list[str], cuts: list[int]) -> None:
    lines = [line for event in events for line in (*(f"data: {text}" for text in event), ": note", "")]
    # A lone CR before an LF would be read as one line end, so an LF never follows a CR here.
    stream, last = "", ""
    for index, line in enumerate(lines):
        end = ends[index % len(ends)]
        if not line and last == "\r" and end == "\n":
            end = "\r"
        stream += line + end
        last = end
    assert read(stream.encode(), cuts) == [Event("\n".join(event).encode()) for event in events]


def test_a_large_event_in_small_parts_is_whole() -> None:
    text = TEXT * 20_000
    assert len(text.encode()) >= 200_000
    stream = f"data: {text}\r\n\r\n".encode()
    parser = SseParser()
    events = [event for start in range(0, len(stream), 3) for event in parser.feed(stream[start : start + 3])]
    assert events == [Event(text.encode())]


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 300, b"data: xxxxxxxxx\n" * 30, b":" + b"x" * 300])
def test_what_has_no_end_is_refused(stream: bytes) -> None:
    with pytest.raises(ModelError, match="more than 200 bytes") as caught:
        read(stream, list(range(0, 1000, 7)), 200)
    assert caught.value.kind == "bad_output"


def test_bytes_that_are_no_text_come_as_they_are_and_are_no_chunk() -> None:
    (event,) = read(b'data: {"a":"\xe6\xa8"}\n\n', [])
    assert event == Event(b'{"a":"\xe6\xa8"}')
    with pytest.raises(ModelError, match="a chunk") as caught:
        read_chunk(event)
    assert caught.value.kind == "bad_output"


def test_a_million_comments_are_not_kept() -> None:
    parser = SseParser(100)
    for _ in range(10_000):
        assert parser.feed(b": still there\n\n") == []
