"""Just enough HTML: everything that comes from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Nothing is fetched and nothing runs."""

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c1917;--soft:#57534e;--paper:#fafaf9;--card:#fff;--line:#e7e5e4;--good:#15803d;
--bad:#b91c1c;--warn:#a16207;--accent:#0b6e99}
@media(prefers-color-scheme:dark){:root{--ink:#f5f5f4;--soft:#a8a29e;--paper:#171412;--card:#211d1b;--line:#3a3431;
--good:#4ade80;--bad:#f87171;--warn:#facc15;--accent:#5cc3ef}img.plot{filter:invert(1) hue-rotate(180deg)}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:1.5rem;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:40px 0 8px}
h3{font-size:1rem;margin:20px 0 6px;overflow-wrap:anywhere}
p{margin:6px 0}.soft{color:var(--soft);font-size:.9rem}
.verdict{border-left:6px solid var(--accent);background:var(--card);padding:14px 18px;margin:18px 0;border-radius:4px}
.verdict.no{border-color:var(--warn)}.verdict strong{font-size:1.15rem}
.verdict ul,ul.flags{margin:8px 0 0;padding-left:20px}ul.flags li{margin:4px 0}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:4px;margin:10px 0}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{padding:6px 9px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;
font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);white-space:normal;vertical-align:bottom}th:first-child,td:first-child{text-align:left}
tr:last-child td{border-bottom:0}tr.mark td:first-child{font-weight:600}td.left,th.left{text-align:left}
td.text{text-align:left;white-space:normal;min-width:14rem;overflow-wrap:anywhere}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px}
.grid.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr))}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:4px;padding:10px}
figure img{width:100%;height:auto;display:block}figcaption{font-size:.85rem;color:var(--soft);margin-top:6px}
code{font:.85em ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:minmax(7rem,auto) 1fr;gap:4px 16px;font-size:.9rem;margin:8px 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
"""


class Safe(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


Content = str | Safe


def html(content: Content) -> str:
    """Return text escaped; what is `Safe` as it is. Characters that no page can hold are replaced."""
    if isinstance(content, Safe):
        return str(content)
    clean = content.encode("utf-8", "replace").decode()
    return escape("".join(c if c >= " " or c in "\t\n" else "�" for c in clean))


def tag(name: str, content: Content, css: str = "") -> Safe:
    """Return one element around escaped content."""
    attribute = f' class="{escape(css)}"' if css else ""
    return Safe(f"<{name}{attribute}>{html(content)}</{name}>")


def joined(parts: Iterable[Content], between: str = "\n") -> Safe:
    """Return the parts one after another."""
    return Safe(between.join(html(part) for part in parts))


def table(
    head: Sequence[Content], rows: Iterable[Sequence[Content]], *, marked: Sequence[int] = (), text: Sequence[int] = ()
) -> Safe:
    """Return a table that scrolls sideways on a narrow screen.

    Args:
        marked: rows to set in bold.
        text: columns of running text, set left and wrapped.
    """
    top = joined((tag("th", cell, "left" if column in text else "") for column, cell in enumerate(head)), "")
    body = []
    for index, row in enumerate(rows):
        cells = joined((tag("td", cell, "text" if column in text else "") for column, cell in enumerate(row)), "")
        body.append(tag("tr", cells, "mark" if index in marked else ""))
    inner = f"<thead><tr>{top}</tr></thead><tbody>{joined(body)}</tbody>"
    return Safe(f'<div class="wide"><table>{inner}</table></div>')


def picture(uri: str, caption: Content, alt: str) -> Safe:
    """Return a figure with its caption."""
    image = f'<img class="plot" alt="{escape(alt, quote=True)}" src="{escape(uri, quote=True)}">'
    return Safe(f"<figure>{image}<figcaption>{html(caption)}</figcaption></figure>")


def bullets(items: Iterable[Content], css: str = "flags") -> Safe:
    """Return a list."""
    return tag("ul", joined(tag("li", item) for item in items), css)


def facts(pairs: Iterable[tuple[Content, Content]]) -> Safe:
    """Return names with their values."""
    return tag("dl", joined(_fact(name, value) for name, value in pairs))


def _fact(name: Content, value: Content) -> Safe:
    return Safe(f"{tag('dt', name)}{tag('dd', value)}")


def page(title: str, body: Content) -> str:
    """Return a whole document that needs nothing from anywhere."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY, quote=True)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{tag('title', title)}<style>{STYLE}</style></head>\n<body><main>\n{html(body)}\n</main></body></html>\n"
    )
