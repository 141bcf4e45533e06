"""Ratio bars as SVG, drawn by hand: to the right of the middle line kafkalite is ahead, to the left Apache Kafka.

The axis is logarithmic, so twice as good and half as good are equally long. Latencies, CPU, memory and the start are
turned over (less is better), hence every bar means "so many times better"; the text beside it has the plain ratio. A
short upright line marks the target of the row. The colours follow the reader's light or dark setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from bench.comparison import Row

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 960, 310, 175
TOP, ROW_HEIGHT, BOTTOM = 64, 26, 44
BAR_HEIGHT = 14
STYLE = """\
svg { font: 13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }
.page { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 }
.middle { stroke: #59636e; stroke-width: 1.5 } .met { fill: #2f7f4f } .missed { fill: #c4602a }
.target { stroke: #1f2328; stroke-width: 2.5 } .title { font-size: 15px; font-weight: 600 } .bold { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 } .text { fill: #f0f6fc } .faint { fill: #9198a1 } .grid { stroke: #30363d }
  .middle { stroke: #9198a1 } .met { fill: #3fa568 } .missed { fill: #e08049 } .target { stroke: #f0f6fc }
}"""


def times_better(ratio: float, more_is_better: bool) -> float:
    """How many times better kafkalite is when this is its figure by Kafka's."""
    return ratio if more_is_better else 1 / ratio


def _limits(found: Sequence[Row]) -> tuple[int, int]:
    """Powers of two that hold every bar and every target, 1 among them."""
    values = [times_better(row.target, row.more_is_better) for row in found]
    values += [times_better(row.ratio, row.more_is_better) for row in found if row.ratio]
    low = min(-1, math.floor(math.log2(min(values, default=1.0))))
    return low, max(1, math.ceil(math.log2(max(values, default=1.0))))


def draw(found: Sequence[Row], title: str, peer: str = "Apache Kafka") -> str:
    """The picture, as the text of an SVG file. `peer` is whom kafkalite stands beside."""
    low, high = _limits(found)
    left, right, bottom = LABEL_WIDTH, WIDTH - VALUE_WIDTH, TOP + ROW_HEIGHT * len(found)

    def x(value: float) -> float:
        return left + (math.log2(value) - low) / (high - low) * (right - left)

    parts = [_text(12, 24, "text title", title)]
    parts.append(_text(12, 44, "faint", f"bar: times better than {peer} (log scale); upright line: the target"))
    for power in range(low, high + 1):
        at = x(2.0**power)
        kind = "middle" if power == 0 else "grid"
        parts.append(_line(at, TOP, at, bottom, kind))
        parts.append(_text(at, bottom + 18, "faint", _times(2.0**power), "middle"))
    parts.append(_text(x(1) - 8, bottom + 36, "faint", f"{peer} better", "end"))
    parts.append(_text(x(1) + 8, bottom + 36, "faint", "kafkalite better"))
    for index, row in enumerate(found):
        parts += _row(row, TOP + ROW_HEIGHT * index, x)
    height = bottom + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _row(row: Row, top: float, x: Callable[[float], float]) -> list[str]:
    base, middle = top + ROW_HEIGHT / 2 + 4.5, top + ROW_HEIGHT / 2
    shown = row.label.strip()
    parts = [_text(24 if row.label.startswith(" ") else 12, base, "text", shown)]
    ratio = row.ratio
    if ratio:
        zero, end = x(1.0), x(times_better(ratio, row.more_is_better))
        kind, width = "met" if row.met else "missed", max(1.0, abs(end - zero))
        parts.append(
            f'<rect class="{kind}" x="{min(zero, end):.1f}" y="{middle - BAR_HEIGHT / 2:.1f}" '
            f'width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
        )
    aim = x(times_better(row.target, row.more_is_better))
    parts.append(_line(aim, middle - 10, aim, middle + 10, "target"))
    at = WIDTH - VALUE_WIDTH + 12
    parts.append(_text(at, base, "text bold", "failed" if row.error or not ratio else f"{ratio:.2f}x"))
    verdict = f"{'≥' if row.more_is_better else '≤'} {row.target:g}{'' if row.met else ' missed'}"
    parts.append(_text(at + 58, base, "faint", verdict))
    return parts


def _times(value: float) -> str:
    return f"{value:g}x" if value >= 1 else f"1/{1 / value:g}"


def _text(x: float, y: float, kind: str, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
