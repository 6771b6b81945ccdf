"""The operator's page that explains one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rheostat.errors import NotFound
from rheostat.recorded import recorded
from rheostat.telemetry.explanation import explain

if TYPE_CHECKING:
    from rheostat.router import Router

EXPLAIN = "/admin/explain/"


def explain_page(router: Router, method: str, raw_path: str) -> tuple[int, Any]:
    """Answer `GET /admin/explain/REQUEST_ID`, percent-encoded: the explanation, and what it was made from.

    Raises:
        NotFound: there is no such record, or records are not kept where they can be looked up.
    """
    if method not in ("GET", "HEAD"):
        raise NotFound(f"there is no such admin page for this method; GET {EXPLAIN}REQUEST_ID")
    record, feedback = recorded(router.loaded, router.recorder, unquote(raw_path.removeprefix(EXPLAIN)))
    return 200, {"explanation": explain(record, feedback), "record": record, "feedback": feedback}
