"""Answers that are given again: in memory, shared through Redis, and one call for equal requests of the same moment."""
