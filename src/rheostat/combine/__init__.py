"""Outcomes into one answer."""

from rheostat.combine.mix import combine

__all__ = ["combine"]
