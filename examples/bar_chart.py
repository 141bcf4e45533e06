"""A chart of bars as the text of an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 960, 300, 64, 40, 40
COLOURS = ("#2f7f4f", "#3b6fb6", "#c4602a", "#8a5fb0", "#b5951f")


def bar_chart(title: str, series: Mapping[str, Sequence[float]], labels: Sequence[tuple[float, str]]) -> str:
    """Bars from left to right; those of several series stand upon each other, and a legend names them.

    A label stands below its place: 0 is the left edge of the first bar, 1.5 the middle of the second one.
    """
    sums = [sum(values) for values in zip(*series.values(), strict=True)]
    step, scale = (WIDTH - LEFT - 10) / len(sums), (HEIGHT - BOTTOM - TOP) / (max(sums) or 1)
    base = HEIGHT - BOTTOM
    grounds, groups = [float(base)] * len(sums), []
    for colour, values in zip(COLOURS, series.values(), strict=False):
        bars = []
        for at, value in enumerate(values):
            grounds[at] -= value * scale
            where = f'x="{LEFT + at * step:.1f}" y="{grounds[at]:.1f}"'
            bars.append(f'<rect {where} width="{step - 1:.1f}" height="{value * scale:.1f}"/>')
        groups.append(f'<g fill="{colour}">{"".join(bars)}</g>')
    texts = [
        f'<text x="{LEFT - 30}" y="{TOP + 6}">{max(sums):,.0f}</text><text x="{LEFT - 12}" y="{base}">0</text>',
        *(f'<text x="{LEFT + at * step:.0f}" y="{base + 22}">{escape(text)}</text>' for at, text in labels),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>{"".join(groups)}{_legend(list(series))}'
        f'<g fill="#1f2328" font-size="12" text-anchor="middle">{"".join(texts)}</g>'
        f'<text x="{LEFT}" y="22" font-size="15" font-weight="600" fill="#1f2328">{escape(title)}</text></svg>\n'
    )


def _legend(names: Sequence[str]) -> str:
    """The names in their colours, at the upper right; nothing for one series."""
    if len(names) < 2:
        return ""
    texts = [
        f'<text x="{WIDTH - 20 - 60 * (len(names) - 1 - at)}" y="22" fill="{colour}">{escape(name)}</text>'
        for at, (name, colour) in enumerate(zip(names, COLOURS, strict=False))
    ]
    return f'<g font-size="12" font-weight="600" text-anchor="end">{"".join(texts)}</g>'
