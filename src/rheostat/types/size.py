"""How large an input is for a model, without its tokenizer."""

from __future__ import annotations

from typing import Any

import msgspec

from rheostat.types.chat import Chat

_FRAME, _PICTURE = 4, 800


def tokens_of(data: Any) -> int:
    """Estimate the tokens of an input: one for every four ASCII characters, one for every other character.

    Text counts as it is, a mapping as its JSON. A conversation counts what was said in it, its tools and response format,
    four for the frame of each message, and 800 for a picture (one of 1024 x 1024 takes 765 with OpenAI's models; others
    from 85 to some thousands). A rule of thumb for subword vocabularies: within about a third for English and Chinese
    prose; leave room for it in `max_input`, and for the answer where both share the context.
    """
    more = 0
    if isinstance(data, str):
        text = data
    elif isinstance(data, Chat):
        text = data.spoken
        more = _FRAME * len(data["messages"]) + _PICTURE * data.pictures + data.ids
    else:
        try:
            text = msgspec.json.encode(data, enc_hook=str).decode()
        except (UnicodeEncodeError, ValueError, TypeError, RecursionError):
            text = repr(data)
    if text.isascii():
        return (len(text) + 3) // 4 + more
    plain = len(text.encode("ascii", "ignore"))
    return (plain + 3) // 4 + len(text) - plain + more
