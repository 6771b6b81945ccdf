"""What a body may be, and what is said about one that is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.errors import BadRequest, TooLarge
from rheostat.gateway.body import FeedbackBody, PredictBody, item_of, parse, read_body, row_of
from rheostat.gateway.headers import check_body_headers


def test_one_row_with_everything() -> None:
    text = b'{"data": {"text": "x"}, "meta": {"a": 1}, "route": {"name": "r", "timeout_ms": 5, "skip_route": true}}'
    body = parse(text, PredictBody)
    assert row_of(body.data, body.text) == {"text": "x"}
    assert body.meta == {"a": 1}
    assert (body.route.name, body.route.timeout_ms, body.route.skip_route) == ("r", 5.0, True)


def test_text_is_short_for_data() -> None:
    body = parse(b'{"text": ""}', PredictBody)
    assert row_of(body.data, body.text) == ""


@pytest.mark.parametrize(
    ("body", "said", "param"),
    [
        (b"", "empty", None),
        (b"  \n", "empty", None),
        (b"null", "expected object, got null", None),
        (b"[]", "expected object, got array", None),
        (b'"x"', "expected object, got str", None),
        (b'{"data": "a"', "ends too early (byte 12)", None),
        (b'{"data": "a",}', "trailing comma", None),
        (b'{"data": /* c */ "a"}', "invalid character (byte 9)", None),
        (b'\xef\xbb\xbf{"data": "a"}', "byte order mark", None),
        (b'{"data": "a\xff"}', "not UTF-8 (byte 11)", None),
        (b'{"data": NaN}', "invalid character", None),
        (b'{"data": {"x": -Infinity}}', "invalid character", None),
        (b'{"data": {"x": 1e999}}', "out of range", "data"),
        (b'{"data": {"x": ' + b"7" * 10_000 + b"}}", "out of range", "data"),
        (b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep", None),
        (b'{"data": ' + b'{"a":' * 100 + b"1" + b"}" * 101, "nested too deep", None),
        (b'{"dat": "a"}', "unknown key 'dat'; did you mean 'data'?", "dat"),
        (b'{"data": "a", "route": {"force": "m"}}', "did you mean 'force_model'?", "route.force"),
        (b'{"data": "a", "meta": []}', "expected object, got array", "meta"),
        (b'{"data": "a", "route": {"timeout_ms": "5"}}', "expected float", "route.timeout_ms"),
        (b'{"data": "a", "data": "b"}', "'data' is given twice", "data"),
        (b'{"data": "a", "d\\u0061ta": "b"}', "'data' is given twice", "data"),
        (b'{"data": "a", "route": {"force_model": "m", "force_model": "n"}}', "given twice", "route.force_model"),
        (b'{"data": "a", "route": {"name": "m"}, "route": {}}', "'route' is given twice", "route"),
        (b'{"items": [{"data": "a", "data": "b"}]}', "'data' is given twice", "items[0].data"),
        (b'{"data": "a"} {"data": "b"}', "trailing characters", None),
    ],
)
def test_what_is_wrong_is_said_with_its_place(body: bytes, said: str, param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body, PredictBody)
    assert said in str(caught.value)
    if param is not None:
        assert (caught.value.param or "").startswith(param)


@pytest.mark.parametrize("body", [b'{"data": null}', b'{"data": 5}', b'{"data": true}', b'{"data": ["a"]}', b"{}"])
def test_a_row_is_a_text_or_an_object(body: bytes) -> None:
    parsed = parse(body, PredictBody)
    with pytest.raises(BadRequest) as caught:
        row_of(parsed.data, parsed.text)
    assert caught.value.param == "data"


def test_a_list_as_data_points_to_items() -> None:
    with pytest.raises(BadRequest, match="items"):
        row_of(["a", "b"], parse(b"{}", PredictBody).text)


def test_the_same_key_in_different_places_is_no_repetition() -> None:
    body = parse(b'{"data": {"data": 1, "text": "t", "meta": 2}, "meta": {"data": 3, "route": 4}}', PredictBody)
    assert body.data == {"data": 1, "text": "t", "meta": 2}


def test_text_that_looks_like_json_is_text() -> None:
    hard = '{"data": "x", "data": [[[[{{{{' * 40
    assert parse(json.dumps({"data": hard}).encode(), PredictBody).data == hard


def test_half_of_a_surrogate_pair_is_taken() -> None:
    body = parse(b'{"data": "a\\ud800b", "meta": {"k": "\\udc00"}}', PredictBody)
    assert body.data == "a\ud800b"
    assert body.meta == {"k": "\udc00"}


@pytest.mark.parametrize("body", [b'{"dat": "\\ud800"}', b'{"data": "\\ud800", "meta": NaN}', b'{"data": "\\ud800'])
def test_a_half_pair_excuses_nothing_else(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(body, PredictBody)


def test_items_are_read_one_by_one() -> None:
    assert item_of({"text": "a", "meta": {"b": 1}}, 0).row() == "a"
    with pytest.raises(BadRequest) as caught:
        item_of({"dta": "a"}, 3)
    assert caught.value.param == "items[3].dta"
    assert "'data'" in str(caught.value)


def test_feedback_refuses_repeated_keys() -> None:
    with pytest.raises(BadRequest, match="label"):
        parse(b'{"request_id": "r", "label": "a", "label": "b"}', FeedbackBody)


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    try:
        outcome: object = parse(body, PredictBody)
    except BadRequest as error:
        outcome = error
    assert isinstance(outcome, PredictBody) or str(outcome) != ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5))
def test_any_object_is_carried_whole(data: dict[str, Any]) -> None:
    for ascii_only in (True, False):
        text = json.dumps({"data": data}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        assert parse(text, PredictBody).data == data


def reading(parts: Iterable[bytes], limit: int) -> tuple[bytes | None, int]:
    """Read a body that comes in parts; returns it and how many parts were taken."""
    left = list(parts)
    taken = 0

    async def receive() -> MutableMapping[str, Any]:
        nonlocal taken
        taken += 1
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return asyncio.run(read_body(receive, limit)), taken


def test_the_limit_itself_is_allowed() -> None:
    assert reading([b"a" * 6, b"b" * 4], 10) == (b"a" * 6 + b"b" * 4, 2)
    assert reading([b"a" * 10], 10) == (b"a" * 10, 1)
    check_body_headers({b"content-length": b"10"}, 10)


def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(TooLarge, match="10 bytes"):
        check_body_headers({b"content-length": b"11", b"content-type": b"multipart/form-data; boundary=x"}, 10)


def test_a_body_without_a_length_is_counted() -> None:
    with pytest.raises(TooLarge):
        reading([b"a" * 4] * 1000, 10)


def test_a_client_that_leaves_gives_no_body() -> None:
    assert reading([], 10) == (None, 1)
