"""Reading a report's charts back: what is drawn, and the numbers beside it."""

import json
import re
from html import unescape


def charts(page):
    """By id: the data of each chart, its drawn points in pixels by series, its caption and notes."""
    found = {}
    for name, body in re.findall(r'<figure class="chart" id="([^"]*)">(.*?)</figure>', page, re.DOTALL):
        data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', body, re.DOTALL).group(1))
        series = re.findall(r'<g class="series [^"]*" data-series="(\d+)">(.*?)</g>', body, re.DOTALL)
        drawn = {int(index): points(inside) for index, inside in series}
        caption = unescape(re.search(r"<figcaption>(.*?)</figcaption>", body).group(1))
        notes = [unescape(note) for note in re.findall(r'<p class="note">(.*?)</p>', body)]
        found[name] = {"data": data, "drawn": drawn, "caption": caption, "notes": notes}
    return found


def points(inside):
    """The corners of a series' path, in pixels."""
    path = re.search(r'<path d="([^"]*)"', inside)
    pairs = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.group(1)) if path else []
    return [(float(x), float(y)) for x, y in pairs]


def values_drawn(chart, index):
    """The points of a series as values: from pixels, by the axes."""
    left, top, right, bottom = chart["data"]["box"]
    x, y = chart["data"]["x"], chart["data"]["y"]
    return [
        (value(x, (across - left) / (right - left)), value(y, (bottom - up) / (bottom - top)))
        for across, up in chart["drawn"][index]
    ]


def value(axis, fraction):
    if axis["log"]:
        return axis["low"] * (axis["high"] / axis["low"]) ** fraction
    return axis["low"] + fraction * (axis["high"] - axis["low"])
