"""Small charts as inline SVG. Colours and dashes are classes (`look-0` …), so that the page's style decides them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

_WIDTH, _HEIGHT = 480, 290
_RIGHT, _TOP, _BOTTOM = 27, 28, 44
_LETTER = 9.5  # the width of a digit at most
_MOST_MARKERS = 12
LOOKS = 7
"""There are this many different looks."""

Point = tuple[float, float]

# The corners of each look's marker; that of the first is a circle.
_SHAPES: dict[int, list[Point]] = {
    1: [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    2: [(0, -1.25), (1.15, 0.9), (-1.15, 0.9)],
    3: [(0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)],
    4: [(0, 1.25), (1.15, -0.9), (-1.15, -0.9)],
    5: [(-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)],
    6: [(-0.5, -1.3), (0.5, -1.3), (0.5, 1.3), (-0.5, 1.3)],
}


@dataclass(frozen=True)
class Curve:
    """Curves of one look and name, such as the seeds of a system, share a place in the legend."""

    name: str
    points: Sequence[Point]
    look: int


@dataclass(frozen=True)
class Chart:
    """A drawing, what stands in its legend (name and look), and its numbers as a table."""

    svg: Markup
    legend: list[tuple[str, int]]
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Interval:
    name: str
    low: float
    value: float
    high: float
    look: int


def curve_chart(curves: Sequence[Curve], x_name: str, y_name: str, title: str) -> Chart | None:
    """None where there is nothing to draw; a curve without a point, such as of a run just begun, is left out."""
    finite = [
        Curve(curve.name, points, curve.look)
        for curve in curves
        if (points := [point for point in curve.points if all(map(math.isfinite, point))])
    ]
    points = [point for curve in finite for point in curve.points]
    if not points:
        return None
    x_ticks = ticks(0.0, max(x for x, _ in points))
    y_ticks = ticks(min(y for _, y in points), max(y for _, y in points))
    labels = tick_labels(y_ticks)
    left = 14 + _LETTER * max(map(len, labels))

    def place(point: Point) -> Point:
        return (
            _scaled(point[0], x_ticks, left, _WIDTH - _RIGHT),
            _scaled(point[1], y_ticks, _HEIGHT - _BOTTOM, _TOP),
        )

    svg = _canvas(_HEIGHT, f"{title}. {_described(finite, y_name)}")
    _add(svg, "text", "tick", y_name, x=4, y=13)
    for y, label in zip(y_ticks, labels, strict=True):
        _, height = place((0, y))
        _add(svg, "line", "rule", x1=left, x2=_WIDTH - _RIGHT, y1=height, y2=height)
        _add(svg, "text", "tick end", label, x=left - 7, y=height + 4)
    for x, label in zip(x_ticks, tick_labels(x_ticks), strict=True):
        _add(svg, "text", "tick middle", label, x=place((x, 0))[0], y=_HEIGHT - _BOTTOM + 18)
    _add(svg, "line", "axis", x1=left, x2=_WIDTH - _RIGHT, y1=_HEIGHT - _BOTTOM, y2=_HEIGHT - _BOTTOM)
    _add(svg, "text", "tick middle", x_name, x=(left + _WIDTH - _RIGHT) / 2, y=_HEIGHT - 6)
    for curve in finite:
        placed = [place(point) for point in curve.points]
        course = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(placed))
        _add(svg, "path", f"line look-{curve.look % LOOKS}", d=course)
        step = math.ceil(len(placed) / _MOST_MARKERS)
        for (x, y), value in list(zip(placed, curve.points, strict=True))[::-1][::step]:
            marker = _marker(svg, curve.look, x, y)
            _add(marker, "title", "", f"{curve.name}, {x_name} {value[0]:,g}: {y_name} {value[1]:.4g}")
    legend = list(dict.fromkeys((curve.name, curve.look) for curve in finite))
    return Chart(_markup(svg), legend, *_table(finite, x_name))


def interval_chart(intervals: Sequence[Interval], unit: str, title: str) -> Chart:
    """One below the other: a dot for the value, a bar for what it might have been."""
    row, top = 46, 8
    height = top + row * len(intervals) + _BOTTOM
    x_ticks = ticks(min(interval.low for interval in intervals), max(interval.high for interval in intervals))
    left, right = 16, _WIDTH - 16
    rows = [[bar.name, f"{bar.value:.2f}", f"{bar.low:.2f}", f"{bar.high:.2f}"] for bar in intervals]
    described = "; ".join(f"{name}: {value}, {low} to {high}" for name, value, low, high in rows)
    svg = _canvas(height, f"{title}. {described}.")
    for x, label in zip(x_ticks, tick_labels(x_ticks), strict=True):
        place = _scaled(x, x_ticks, left, right)
        _add(svg, "line", "rule", x1=place, x2=place, y1=top, y2=height - _BOTTOM)
        _add(svg, "text", "tick middle", label, x=place, y=height - _BOTTOM + 18)
    _add(svg, "text", "tick middle", unit, x=_WIDTH / 2, y=height - 6)
    for place, interval in enumerate(intervals):
        y = top + row * place + 32
        low, value, high = (_scaled(x, x_ticks, left, right) for x in (interval.low, interval.value, interval.high))
        _add(svg, "text", "name", interval.name, x=left, y=y - 12)
        look = f"look-{interval.look % LOOKS}"
        _add(svg, "line", f"interval {look}", x1=low, x2=high, y1=y, y2=y)
        _marker(svg, interval.look, value, y, size=6)
    return Chart(_markup(svg), [], ["", unit, "from", "to"], rows)


def sample(look: int) -> Markup:
    """A piece of a curve, for a legend."""
    svg = ET.Element("svg", {"class": "sample", "viewBox": "0 0 36 14", "aria-hidden": "true"})
    _add(svg, "path", f"line look-{look % LOOKS}", d="M1 7 L35 7")
    _marker(svg, look, 18, 7)
    return _markup(svg)


def ticks(low: float, high: float) -> list[float]:
    """Four to seven round numbers that hold an interval."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [place * step for place in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """All with as many digits as the finest of them needs."""
    step = ticks[1] - ticks[0]
    digits = next(digits for digits in range(20) if abs(round(step, digits) - step) < step / 1000)
    return [f"{tick:,.{digits}f}" for tick in ticks]


def _scaled(value: float, ticks_: Sequence[float], start: float, end: float) -> float:
    return start + (value - ticks_[0]) / (ticks_[-1] - ticks_[0]) * (end - start)


def _canvas(height: float, description: str) -> ET.Element:
    box = f"0 0 {_WIDTH} {height}"
    return ET.Element("svg", {"class": "chart", "viewBox": box, "role": "img", "aria-label": description})


def _add(parent: ET.Element, tag: str, look: str, text: str | None = None, **attributes: float | str) -> ET.Element:
    texts = {key: value if isinstance(value, str) else f"{value:.1f}" for key, value in attributes.items()}
    child = ET.SubElement(parent, tag, ({"class": look} if look else {}) | texts)
    child.text = text
    return child


def _marker(parent: ET.Element, look: int, x: float, y: float, size: float = 4) -> ET.Element:
    """A shape of its own for each look: colour is never the only difference."""
    corners = _SHAPES.get(look % LOOKS)
    classes = f"marker look-{look % LOOKS}"
    if corners is None:
        return _add(parent, "circle", classes, cx=x, cy=y, r=size)
    points = " ".join(f"{x + right * size * 0.9:.1f},{y + down * size * 0.9:.1f}" for right, down in corners)
    return _add(parent, "polygon", classes, points=points)


def _described(curves: Sequence[Curve], y_name: str) -> str:
    sentences = []
    for curve in curves:
        (_, first), (_, last) = curve.points[0], curve.points[-1]
        verb = "rises" if last > first else "falls" if last < first else "stays"
        sentences.append(f"{curve.name}: {y_name} {verb} from {first:.4g} to {last:.4g}.")
    return " ".join(sentences)


def _table(curves: Sequence[Curve], x_name: str) -> tuple[list[str], list[list[str]]]:
    """The same numbers, a row for each x."""
    values = [dict(curve.points) for curve in curves]
    every = sorted({x for points in values for x in points})
    rows = [[f"{x:,g}", *(f"{points[x]:.4g}" if x in points else "" for points in values)] for x in every]
    return [x_name, *(curve.name for curve in curves)], rows


def _markup(svg: ET.Element) -> Markup:
    return Markup(ET.tostring(svg, encoding="unicode"))
