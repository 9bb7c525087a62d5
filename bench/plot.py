"""Draws seconds over shares of changed rows as SVG, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

COLORS = {"incremental": "#2a9d8f", "full": "#6c757d", "chosen": "#e76f51"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 300, 50, 40, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a panel: (share of changed rows, seconds)."""

    panel: str
    name: str
    points: Sequence[tuple[float, float]]


def plot(curves: Sequence[Curve], title: str) -> str:
    """Return an SVG with the panels side by side, all on the same scale."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    scale = _Scale([point for curve in curves for point in curve.points])
    size = f"{len(panels) * (WIDTH + LEFT) + 20} {TOP + HEIGHT + BOTTOM}"
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"'
    parts = [
        f'{opening} font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({LEFT + number * (WIDTH + LEFT)},{TOP})">')
        parts.append(f'<text x="0" y="-12" font-size="13">{panel}, {title}: seconds</text>')
        parts += scale.grid()
        parts += [scale.line(curve) for curve in curves if curve.panel == panel]
        parts.append("</g>")
    for number, (name, color) in enumerate(COLORS.items()):
        x, y = LEFT + number * 100, TOP + HEIGHT + BOTTOM - 14
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{x + 15}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """From shares and seconds to places in a panel."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        shares, seconds = zip(*points, strict=True)
        self._x = (math.log10(min(shares)), max(math.log10(max(shares)), -1))
        self._y = (math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds))))

    def grid(self) -> list[str]:
        lines = []
        for power in range(math.ceil(self._x[0]), math.floor(self._x[1]) + 1):
            x, _ = self._place(10.0**power, 10.0 ** self._y[0])
            lines.append(f'<path d="M{x:.1f} 0V{HEIGHT}" stroke="#dddddd"/>')
            text = f"{100 * 10.0**power:g} %"
            lines.append(f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{text}</text>')
        for power in range(self._y[0], self._y[1] + 1):
            _, y = self._place(10.0 ** self._x[0], 10.0**power)
            lines.append(f'<path d="M0 {y:.1f}H{WIDTH}" stroke="#dddddd"/>')
            text = f"{10.0**power:g}"
            lines.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        return lines

    def line(self, curve: Curve) -> str:
        places = " ".join("{:.1f},{:.1f}".format(*self._place(*point)) for point in curve.points)
        dashes = ' stroke-dasharray="4 3"' if curve.name == "chosen" else ""
        return (
            f'<polyline points="{places}" fill="none" stroke="{COLORS[curve.name]}" '
            f'stroke-width="2"{dashes}/>'
        )

    def _place(self, share: float, seconds: float) -> tuple[float, float]:
        (left, right), (low, high) = self._x, self._y
        x = (math.log10(share) - left) / ((right - left) or 1) * WIDTH
        y = HEIGHT - (math.log10(seconds) - low) / ((high - low) or 1) * HEIGHT
        return x, y
