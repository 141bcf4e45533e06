"""Capacity by cores as SVG, drawn by hand on logarithmic axes. Up to the cores of the machine a dot is full, beyond it
is computed and hollow. The colours follow the reader's light or dark setting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape

from bench.plot import STYLE

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 24, 56, 56
_LINES = ("#2f7f4f", "#c4602a", "#4a6fb5", "#8250a8")


def draw(capacity: Mapping[str, Mapping[int, float]], cores: int) -> str:
    """The picture, as the text of an SVG file: requests a second by work and number of cores."""
    counts = sorted({count for by_count in capacity.values() for count in by_count})
    rates = [rate for by_count in capacity.values() for rate in by_count.values()]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    widest = math.log2(counts[-1] / counts[0]) or 1.0

    def x(count: int) -> float:
        return _LEFT + math.log2(count / counts[0]) / widest * (_WIDTH - _LEFT - _RIGHT)

    def y(rate: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(rate) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def parts() -> Iterator[str]:
        yield f'<text x="12" y="24" class="text title">{escape("Requests a second by cores")}</text>'
        for power in range(low, high + 1):
            at = y(10.0**power)
            yield f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}" class="grid"/>'
            yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" class="faint" text-anchor="end">{10**power:,}</text>'
        for count in counts:
            yield f'<text x="{x(count):.1f}" y="{_HEIGHT - 32}" class="faint" text-anchor="middle">{count}</text>'
        foot = f"cores; hollow: computed, beyond the {cores} of the machine"
        yield f'<text x="{_LEFT}" y="{_HEIGHT - 10}" class="faint">{foot}</text>'
        for colour, (work, by_count) in zip(_LINES, capacity.items(), strict=False):
            dots = [(x(count), y(rate)) for count, rate in sorted(by_count.items())]
            line = " ".join(f"{at:.1f},{up:.1f}" for at, up in dots)
            yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            for count, (at, up) in zip(sorted(by_count), dots, strict=True):
                fill = colour if count <= cores else "none"
                yield f'<circle cx="{at:.1f}" cy="{up:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
            yield f'<text x="{dots[0][0] + 8:.1f}" y="{dots[0][1] - 8:.1f}" fill="{colour}">{escape(work)}</text>'

    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" role="img" aria-label="Requests a second by cores">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
            *parts(),
            "</svg>\n",
        ]
    )
