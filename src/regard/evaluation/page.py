"""The look of a report: a page whose styles and script are in it, and which may fetch nothing."""

import base64
import hashlib
import html
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark;
  --page: #f6f6f3; --card: #ffffff; --ink: #1a1d21; --soft: #5d646d; --faint: #e5e6e1;
  --one: #1f63d6; --two: #c8540a; --good: #1a7f4b; --wash: #f0f1ed; }
@media (prefers-color-scheme: dark) { :root {
  --page: #101215; --card: #181b20; --ink: #e8eaed; --soft: #9aa2ac; --faint: #2b3037;
  --one: #74a9ff; --two: #ff9d5c; --good: #5fd39a; --wash: #20242a; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 48px 24px 64px; }
h1, h2, h3, p, figure, dl, dd, ol { margin: 0; padding: 0; }
h1 { font-size: 34px; line-height: 1.15; letter-spacing: -.02em; overflow-wrap: anywhere; }
h2 { font-size: 20px; letter-spacing: -.01em; margin: 44px 0 14px; }
h3 { font-size: 15px; }
.over { color: var(--one); font-weight: 600; font-size: 13px; letter-spacing: .08em;
  text-transform: uppercase; margin-bottom: 6px; }
.lead { color: var(--soft); margin-top: 8px; max-width: 65ch; }
h2 + .lead { margin: -8px 0 14px; font-size: 14.5px; }
.note { color: var(--soft); font-size: 13.5px; margin-top: 8px; }
.chart .note { padding: 0 4px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin-top: 28px; }
.card, .tile, .chart, .sample { background: var(--card); border: 1px solid var(--faint);
  border-radius: 12px; }
.tile { padding: 14px 16px 12px; }
.tile .name { color: var(--soft); font-size: 13.5px; }
.tile .value { font-size: 28px; font-weight: 650; letter-spacing: -.02em; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.tile .of { color: var(--soft); font-size: 12.5px; line-height: 1.35; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px; }
.chart { padding: 14px 14px 12px; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2px 16px;
  padding: 0 4px 6px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 13.5px; color: var(--soft); }
.legend b { color: var(--ink); font-variant-numeric: tabular-nums; }
.swatch { display: inline-block; width: 12px; height: 3px; border-radius: 2px; margin-right: 6px;
  vertical-align: middle; }
.swatch.c1 { background: var(--one); } .swatch.c2 { background: var(--two); }
.plot { position: relative; }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; }
svg text.y { text-anchor: end; }
.grid { stroke: var(--faint); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; opacity: .6; }
.mark { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 3 4; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line.c1 { stroke: var(--one); } .line.c2 { stroke: var(--two); }
.dot { stroke: var(--card); stroke-width: 1.2; }
.dot.c1 { fill: var(--one); } .dot.c2 { fill: var(--two); }
.cursor line { stroke: var(--soft); stroke-width: 1; opacity: .7; }
.tip { position: absolute; top: 4px; pointer-events: none; background: var(--ink);
  color: var(--card); border-radius: 7px; padding: 6px 10px; font-size: 12.5px; line-height: 1.4;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
.tip b { display: block; }
[hidden] { display: none; }
.samples { display: grid; gap: 12px; }
.sample { padding: 18px 20px 8px; }
.pair { display: grid; grid-template-columns: 92px 1fr; gap: 4px 14px; }
.pair dt, .when { color: var(--soft); font-size: 13.5px; padding-top: 2px;
  font-variant-numeric: tabular-nums; }
.pair dd, .said p { overflow-wrap: anywhere; white-space: pre-wrap; }
.said { list-style: none; border-top: 1px solid var(--faint); margin-top: 12px; }
.said li { display: grid; grid-template-columns: 92px 1fr; gap: 0 14px; padding: 7px 0;
  border-bottom: 1px solid var(--faint); }
.said li:last-child { border-bottom: 0; }
.said li:first-child p { font-weight: 600; }
.said .off { color: var(--soft); font-weight: 400; text-decoration: underline dotted;
  text-underline-offset: 4px; text-decoration-color: var(--two); }
.gap { display: inline-block; width: 2px; height: 1em; margin: 0 3px; vertical-align: -.12em;
  background: var(--two); border-radius: 1px; }
.same { color: var(--good); font-size: 12.5px; font-weight: 600; white-space: nowrap; }
.card { padding: 6px 18px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 8px 16px 8px 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; }
th { color: var(--soft); font-weight: 500; font-size: 13.5px; }
tr:last-child > * { border-bottom: 0; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.share { width: 26%; min-width: 90px; padding-right: 0; }
.bar { display: block; height: 8px; border-radius: 4px; background: var(--one); margin-top: 9px;
  min-width: 2px; }
tr.total td { font-weight: 650; }
code, pre { font: 13px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono",
  monospace; }
code { overflow-wrap: anywhere; }
td code { color: var(--soft); }
pre { margin: 0; padding: 14px 0; overflow-x: auto; }
pre .section { color: var(--one); font-weight: 600; }
details summary { cursor: pointer; padding: 10px 0; font-weight: 600; }
footer { color: var(--soft); font-size: 13.5px; margin-top: 44px; }
@media (max-width: 760px) {
  main { padding: 28px 14px 48px; }
  h1 { font-size: 27px; }
  .charts { grid-template-columns: minmax(0, 1fr); }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .sample { padding: 14px 14px 4px; }
  .card { padding: 4px 14px; }
  .pair, .said li { grid-template-columns: minmax(0, 1fr); gap: 0; }
  .pair dd { margin-bottom: 6px; }
  svg text { font-size: 16.5px; }
  td.share, th.share { display: none; }
}
@media print { body { background: #fff; } .card, .tile, .chart, .sample { break-inside: avoid; } }
"""

_SCRIPT: Final = """
for (const figure of document.querySelectorAll("figure.chart")) {
  const series = JSON.parse(figure.dataset.series);
  const svg = figure.querySelector("svg");
  const tip = figure.querySelector(".tip");
  const cursor = figure.querySelector(".cursor");
  const line = cursor.querySelector("line");
  const width = svg.viewBox.baseVal.width;
  line.setAttribute("y1", 12);
  line.setAttribute("y2", svg.viewBox.baseVal.height - 34);
  const nearest = (points, x) =>
    points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const at = nearest(series.flatMap((one) => one.points), x);
    tip.replaceChildren();
    const head = document.createElement("b");
    head.textContent = at[2];
    tip.append(head);
    cursor.querySelectorAll("circle").forEach((dot) => dot.remove());
    for (const one of series) {
      const point = nearest(one.points, at[0]);
      const row = document.createElement("div");
      const when = point[2] === at[2] ? "" : ` (${point[2]})`;
      row.textContent = `${one.label} ${point[3]}${when}`;
      tip.append(row);
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      dot.setAttribute("class", "dot " + one.colour);
      dot.setAttribute("cx", point[0]);
      dot.setAttribute("cy", point[1]);
      dot.setAttribute("r", 4.5);
      cursor.append(dot);
    }
    line.setAttribute("x1", at[0]);
    line.setAttribute("x2", at[0]);
    cursor.removeAttribute("hidden");
    tip.hidden = false;
    const place = (at[0] / width) * box.width;
    tip.style.left = (place > box.width / 2 ? place - tip.offsetWidth - 12 : place + 12) + "px";
  };
  const hide = () => {
    cursor.setAttribute("hidden", "");
    tip.hidden = true;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
}
"""


def page(title: str, body: str) -> str:
    """A whole HTML page around `body`, which must be escaped already.

    Its policy lets a browser fetch nothing and run this script only, so that no text of a
    corpus, whatever it says, can do more than be read.
    """
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
