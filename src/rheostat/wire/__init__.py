"""A lean HTTP/1.1 client for servers that are asked over and over: keep-alive, bounded, nothing that is not needed."""

from rheostat.wire.answer import Answer, ShownHeaders
from rheostat.wire.client import AnswerStream, Client
from rheostat.wire.failures import BrokenOff, NotConnected, TooLargeAnswer, WireError
from rheostat.wire.origin import Origin, head_of

__all__ = [
    "Answer",
    "AnswerStream",
    "BrokenOff",
    "Client",
    "NotConnected",
    "Origin",
    "ShownHeaders",
    "TooLargeAnswer",
    "WireError",
    "head_of",
]
