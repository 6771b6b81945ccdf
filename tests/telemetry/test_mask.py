import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.telemetry.mask import Masker, fingerprint, mask_secrets

SECRET = 'pa/ss+w"ord&=ünï 42'


def test_every_way_of_writing_a_known_secret_is_found():
    basic = base64.b64encode(f"someone:{SECRET}".encode()).decode()
    for form in (
        SECRET, quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET), quote(SECRET, safe="").lower(),
        json.dumps(SECRET), repr(SECRET), html.escape(SECRET), base64.b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
        base64.urlsafe_b64encode(b"a:" + SECRET.encode()).decode(), quote(quote(SECRET, safe=""), safe=""), basic,
    ):  # fmt: skip
        masked = mask_secrets(f"before ({form}) after", [SECRET])
        assert fingerprint(SECRET) in masked, form
        assert masked.startswith("before ("), form
        assert masked.endswith(") after"), form
        assert SECRET not in masked, form


@given(st.text(min_size=8, max_size=30), st.binary(max_size=8), st.binary(max_size=8))
def test_base64_at_any_offset(secret, before, after):
    raw = secret.encode()
    encoded = base64.b64encode(before + raw + after).decode()
    masked = Masker([secret]).mask(encoded)
    assert "[secret" in masked
    # At most the characters at both edges remain, which hold a few bits of the secret.
    assert len(masked) <= len(encoded) - (8 * len(raw) // 6 - 1) + len("[secret abcdef]")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: [secret]"),
        ("got 'Basic dXNlcjpwYXNz'", "got 'Basic [secret]'"),
        ("redis://user:hunter22@host:6379/0", "redis://user:[secret]@host:6379/0"),
        ("GET /v1?api_key=abcd1234&x=1", "GET /v1?api_key=[secret]&x=1"),
        ('{"password": "letmein1"}', '{"password": "[secret]"}'),
        ("key sk-abcdefgh12345678 is wrong", "key [secret] is wrong"),
        ("the token is missing", "the token is missing"),
        ("12 tokens: 3.4 s", "12 tokens: 3.4 s"),
    ],
)
def test_what_looks_like_a_credential_goes_too(text, masked):
    assert mask_secrets(text, []) == masked


def test_secrets_can_be_added_and_old_ones_stay_hidden():
    masker = Masker(["first-secret"])
    masker.add(["second-secret", "abc"])
    assert masker("first-secret second-secret abc") == (
        f"[secret {fingerprint('first-secret')}] [secret {fingerprint('second-secret')}] abc"
    )


def test_a_secret_inside_another_is_covered_by_the_longer():
    assert Masker(["abcd", "abcdefgh"]).mask("xabcdefghx") == f"x[secret {fingerprint('abcdefgh')}]x"


def test_masking_twice_changes_nothing_more():
    masker = Masker(["first-secret"])
    once = masker.mask("api_key=first-secret Bearer first-secret password=other-one")
    assert masker.mask(once) == once
    assert "other-one" not in once
