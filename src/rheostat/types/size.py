"""How large an input is for a model, without its tokenizer."""

from __future__ import annotations

from typing import Any

import msgspec

from rheostat.types.chat import Chat


def tokens_of(data: Any) -> int:
    """Estimate the tokens of an input: one for every four ASCII characters, one for every other character.

    Text counts as it is, a mapping as its JSON, a conversation as what was said in it and its tools, without its images.
    A rule of thumb for subword vocabularies: within about a third for English and Chinese prose; leave room for it in
    `max_input`.
    """
    if isinstance(data, str):
        text = data
    elif isinstance(data, Chat):
        text = data.spoken
    else:
        try:
            text = msgspec.json.encode(data, enc_hook=str).decode()
        except (UnicodeEncodeError, ValueError, TypeError, RecursionError):
            text = repr(data)
    if text.isascii():
        return (len(text) + 3) // 4
    plain = len(text.encode("ascii", "ignore"))
    return (plain + 3) // 4 + len(text) - plain
