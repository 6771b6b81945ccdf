"""What a YAML parser's complaint means, in plain words."""

from __future__ import annotations

from typing import Any

from rheostat.errors import Problem

_MEANINGS = (
    ("tab character", "a tab; indent with spaces"),
    ("mapping values are not allowed", "a `:` where no key can stand; quote text with `: ` in it, or check the indentation"),
    ("unexpected end of stream", "a quote that is opened here is never closed{began}"),
    ("expected ',' or ']'", "a list [...] is not closed, or lacks a comma{began}"),
    ("expected ',' or '}'", "a mapping {{...}} is not closed, or lacks a comma{began}; quote text with {{ }} [ ] , in it"),
    ("unexpected ':'", "a `:` needs a space and a value after it; text with a `:` in it can be quoted"),
    ("node content", "a value is missing here{began}; is the file complete?"),
    ("undefined alias", "`*name` needs an `&name` above it; text that starts with * must be quoted"),
    ("another document", "only one document fits in a config: remove the `---`"),
    ("expected a single document", "only one document fits in a config: remove the `---`"),
    ("duplicate anchor", "an anchor of this name already exists above"),
    ("maximum nesting depth", "nested too deep"),
    ("could not find expected ':'", "a key without its `:`"),
    ("unknown escape", "an unknown \\escape in double quotes; use single quotes, or write \\\\"),
    ("expected '-' indicator", "this line's indentation does not fit the lines above{began}"),
    ("expected key", "this line's indentation does not fit the lines above{began}"),
    ("expected <block end>", "this line's indentation does not fit the lines above{began}"),
    ("<document start>", "this line's indentation does not fit the lines above"),
)


def syntax_problem(error: Any, text: str) -> Problem:
    """Turn a parser's error into a problem with its line, column and remedy."""
    mark = getattr(error, "problem_mark", None)
    said = str(getattr(error, "problem", None) or getattr(error, "context", None) or error)
    if mark is None:
        position = getattr(error, "position", None)
        if position is None:
            return Problem("", None, f"not YAML: {said}")
        code = ord(text[position]) if position < len(text) else 0
        return Problem("", text.count("\n", 0, position) + 1, f"the character U+{code:04X} is not allowed; remove it")
    line, column = mark.line + 1, mark.column + 1
    whole = f"{getattr(error, 'context', None) or ''} {said}"
    return Problem("", line, f"not YAML at column {column}: {_meaning(whole, said, error, _character(text, line, column))}")


def _meaning(whole: str, said: str, error: Any, character: str) -> str:
    if "cannot start any token" in whole:
        if character == "\t":
            return "a tab; indent with spaces"
        return f"text that starts with {character} must be quoted"
    began = getattr(error, "context_mark", None)
    since = f" (it began in line {began.line + 1})" if began is not None else ""
    for fragment, meaning in _MEANINGS:
        if fragment in whole:
            return meaning.format(began=since)
    return said


def _character(text: str, line: int, column: int) -> str:
    lines = text.split("\n")
    row = lines[line - 1] if line <= len(lines) else ""
    return row[column - 1] if column <= len(row) else ""
