"""How an exchange fails, by what may have happened on the other side. A time limit raises Python's TimeoutError."""

from __future__ import annotations


class WireError(Exception):
    """An exchange failed."""


class NotConnected(WireError):
    """No connection could be made: nothing was sent."""


class BrokenOff(WireError):
    """The connection ended, or what came was no HTTP: the request may have arrived."""


class Unheard(BrokenOff):
    """A connection that had been kept for a while ended before anything of an answer came: the other side most likely gave
    it up while it was idle, and never read the request."""


class TooLargeAnswer(WireError):
    """The answer has more bytes than are taken."""
