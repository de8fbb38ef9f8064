"""Drawings for the HTML report: SVG, and one PNG, as text that goes into the page."""

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from html import escape

from aotcheck.report.illustrate import Side, Window

__all__ = ["alias_diagram", "heat_map", "labelled_heat_map", "throughput"]

CELL, ROW, LABEL, MOST_CELLS = 22, 20, 150, 48
COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2", "#6cc5b0", "#9c6b4e", "#97bbf5")


def alias_diagram(side: Side) -> str:
    """Storages as rows of cells, and under each the tensors on it, a bar over every cell that a tensor covers."""
    by_storage: dict[str, list[Window]] = {}
    for window in side.windows:
        by_storage.setdefault(window.storage, []).append(window)
    parts: list[str] = []
    y, widest = 4, 0
    for number, (name, windows) in enumerate(by_storage.items()):
        unit = min(w.itemsize for w in windows)
        cells = min(windows[0].nbytes // unit, MOST_CELLS)
        widest = max(widest, cells)
        parts.append(_text(4, y + 14, f"storage of {name}, {windows[0].nbytes} B", "s"))
        for i in range(cells):
            parts.append(f'<rect class="c" x="{LABEL + i * CELL}" y="{y}" width="{CELL - 1}" height="{ROW - 3}"/>')
            parts.append(_text(LABEL + i * CELL + 4, y + 12, str(i), "i"))
        y += ROW
        for window in windows:
            parts.extend(_bar(window, y, unit, cells, COLOURS[number % len(COLOURS)]))
            y += ROW
        y += 8
    width = LABEL + max(widest, 4) * CELL + 4
    label = f"alias diagram: {len(by_storage)} storages, {len(side.windows)} tensors"
    return (
        f'<svg class="alias" role="img" aria-label="{label}" width="{width}" height="{y}" viewBox="0 0 {width} {y}">'
        f"{''.join(parts)}</svg>"
    )


def _bar(window: Window, y: int, unit: int, cells: int, colour: str) -> Iterator[str]:
    same = f" = {window.object_of}" if window.object_of != window.name else ""
    about = f"{window.dtype}{list(window.shape)}, stride {list(window.stride)}, offset {window.offset}"
    yield _text(16, y + 12, f"{window.name}{same}", "t", about)
    for place in dict.fromkeys(window.places):
        first = place // unit
        if 0 <= first < cells:
            wide = CELL * max(window.itemsize // unit, 1) - 1
            box = f'x="{LABEL + first * CELL}" y="{y + 2}" width="{wide}" height="{ROW - 8}"'
            yield (f'<rect {box} rx="3" fill="{colour}"><title>{escape(window.name)}: {escape(about)}</title></rect>')


def _text(x: int, y: int, text: str, kind: str, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}{inside}</text>'


def throughput(rates: Sequence[tuple[float, float]]) -> str:
    """Programs per second over seconds, as a line; ``rates`` are (time, rate)."""
    if len(rates) < 2:
        return ""
    width, height = 640, 120
    last, most = max(t for t, _ in rates) or 1.0, max(r for _, r in rates) or 1.0
    points = " ".join(f"{40 + 590 * t / last:.1f},{104 - 90 * r / most:.1f}" for t, r in rates)
    return (
        f'<svg class="rate" role="img" aria-label="programs per second" viewBox="0 0 {width} {height}">'
        f'<line class="x" x1="40" y1="104" x2="630" y2="104"/><line class="x" x1="40" y1="14" x2="40" y2="104"/>'
        f'<polyline points="{points}"/>'
        f"{_text(2, 18, f'{most:.1f}/s', 's')}{_text(560, 118, f'{last:.0f} s', 's')}</svg>"
    )


def heat_map(rows: Sequence[Sequence[int]], excluded: frozenset[tuple[int, int]], scale: int = 4) -> str:
    """Counts of pairs (lower triangle, row by row) as a PNG in a data URI.

    Red for none, blue for some, the darker the more, grey for pairs that cannot meet.
    """
    n = len(rows)
    most = max((count for row in rows for count in row), default=0)
    lines = bytearray()
    for i in range(n):
        line = bytearray()
        for j in range(n):
            if j >= i:
                colour = (255, 255, 255)
            elif (i, j) in excluded:
                colour = (225, 225, 225)
            else:
                colour = _shade(rows[i][j], most)
            line += bytes(colour) * scale
        lines += (b"\0" + line) * scale
    return f"data:image/png;base64,{base64.b64encode(_png(n * scale, n * scale, bytes(lines))).decode()}"


def labelled_heat_map(
    traits: Sequence[str], rows: Sequence[Sequence[int]], excluded: frozenset[tuple[int, int]], scale: int = 9
) -> str:
    """:func:`heat_map` as an SVG with the names of the ``traits``, each where its row ends and its column begins."""
    side = len(rows) * scale
    labels = "".join(_text((i + 1) * scale + 2, (i + 1) * scale - 2, name, "t") for i, name in enumerate(traits))
    return (
        f'<svg class="heat" role="img" aria-label="heat map of feature pairs" viewBox="0 0 {side + 130} {side}">'
        f'<image href="{heat_map(rows, excluded, 1)}" width="{side}" height="{side}"/>{labels}</svg>'
    )


def _shade(count: int, most: int) -> tuple[int, int, int]:
    if not count:
        return 255, 214, 204  # missing: meant to be seen
    share = (count.bit_length() / max(most.bit_length(), 1)) ** 0.8
    return int(225 - 190 * share), int(238 - 150 * share), int(250 - 90 * share)


def _png(width: int, height: int, lines: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", max(width, 1), max(height, 1), 8, 2, 0, 0, 0)
    body = lines if width and height else b"\0\xff\xff\xff"
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b"")
