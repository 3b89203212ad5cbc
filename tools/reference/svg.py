"""Shared parts of the drawings: styles for light and dark themes, boxes, labels and arrows."""

from __future__ import annotations

from html import escape

STYLE = """<style>
:root { color-scheme: light dark; --ink:#3a342c; --quiet:#776e61; --line:#cfc6b8; --paper:#fdfbf7; --package:#f4efe6;
  --core:#e3d3b4; --mark:#a2672d; }
@media (prefers-color-scheme: dark) { :root { --ink:#e8e1d5; --quiet:#a89e90; --line:#4a443b; --paper:#1d1a16;
  --package:#2a2620; --core:#54452a; --mark:#d9a066; } }
.ground { fill: var(--paper); } .package { fill: var(--package); stroke: var(--line); }
.core { fill: var(--core); stroke: var(--line); } .rule { stroke: var(--line); } .band { fill: var(--package); }
.mark { fill: var(--mark); }
text { font-family: system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; } .name { font-size: 14px; font-weight: 500; }
.sub { font-size: 12px; fill: var(--quiet); }
.text { font-size: 13px; } .code { font-family: ui-monospace, monospace; font-size: 11px; fill: var(--quiet); }
.event { font-family: ui-monospace, monospace; font-size: 11px; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.flow { fill: none; stroke: var(--quiet); stroke-width: 1.5; } .tip { fill: var(--quiet); }
.kept { fill: none; stroke: var(--quiet); stroke-dasharray: 4 4; }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>"""


def svg_document(width: int, height: int, title: str, description: str, parts: list[str]) -> str:
    """A complete SVG file; `description` is read by screen readers."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">',
            f'<title id="t">{escape(title)}</title>',
            f'<desc id="d">{escape(description)}</desc>',
            STYLE,
            f'<rect class="ground" width="{width}" height="{height}" rx="12"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def box(x: float, y: float, width: float, height: float, kind: str = "package", radius: int = 8) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'


def label(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def path(way: str, kind: str = "flow", *, tip: bool = True) -> str:
    return f'<path class="{kind}" d="{way}"' + (' marker-end="url(#tip)"' if tip else "") + "/>"
