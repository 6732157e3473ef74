// One chart: axes, lines, bands, points and marks as SVG, with a readout under the pointer and under the keyboard.
import { h, s, say } from "./dom.js";
import { buttons } from "./export.js";

const WIDTH = 560, HEIGHT = 310, LEFT = 54, RIGHT = 14, TOP = 36, BOTTOM = 42;

export function ticks(low, high, log) {
  if (log) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
    const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
    return inside.length > 9 ? inside.filter((value) => Math.log10(value) % 1 === 0) : inside;
  }
  const span = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(span));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((each) => each >= span);
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, index) => +(index * step).toPrecision(6)).filter((v) => v >= low);
}

const plain = (value) => (value >= 10_000 ? `${+(value / 1000).toPrecision(4)}k` : String(+value.toPrecision(4)));

export class Chart {
  // series: {kind: line|dots|band, name, tone, points: [{x, y, lower?, upper?, note?}]}; marks: {x|y, x2?, name, tone}.
  constructor({ name, title, xTitle, yTitle, series, marks = [], logX = false, logY = false, xMax, rows, height = HEIGHT, note }) {
    Object.assign(this, { name, series, marks, logX, logY, height, xTitle, yTitle, told: [] });
    const points = series.flatMap((each) => each.points);
    const xs = [...points.map((p) => p.x), ...marks.filter((m) => m.x !== undefined).flatMap((m) => [m.x, m.x2 ?? m.x])].filter((v) => Number.isFinite(v));
    const ys = [...points.flatMap((p) => [p.y, p.upper ?? p.y]), ...marks.filter((m) => m.y !== undefined).map((m) => m.y)].filter((v) => Number.isFinite(v) && v > 0);
    this.xLow = logX ? Math.min(1, ...xs.filter((v) => v > 0)) : 0;
    this.xHigh = (xMax ?? Math.max(...xs, this.xLow + 1)) * (logX ? 1.12 : 1.02);
    this.yLow = logY ? Math.min(...ys) * 0.8 : 0;
    this.yHigh = Math.max(...ys, 1e-9) * (logY ? 1.25 : 1.08);
    this.svg = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${title}: ${yTitle} against ${xTitle}. Arrow keys tell each point.`, class: "chart" });
    this.draw();
    this.told.sort((a, b) => a.x - b.x);
    readouts(this.svg, () => this.told);
    this.element = h("figure", { class: "chart-box" },
      h("figcaption", {}, h("b", {}, title), h("span", { class: "grow" }), buttons(name, { svg: () => this.svg, rows })),
      this.svg, this.legend(), note && h("p", { class: "muted note" }, note));
  }

  x(value) {
    const share = this.logX ? Math.log(Math.max(value, this.xLow) / this.xLow) / Math.log(this.xHigh / this.xLow) : (value - this.xLow) / (this.xHigh - this.xLow);
    return +(LEFT + share * (WIDTH - LEFT - RIGHT)).toFixed(2);
  }

  y(value) {
    const share = this.logY ? Math.log(Math.max(value, this.yLow) / this.yLow) / Math.log(this.yHigh / this.yLow) : value / this.yHigh;
    return +(this.height - BOTTOM - Math.min(share, 1.02) * (this.height - BOTTOM - TOP)).toFixed(2);
  }

  draw() {
    const right = WIDTH - RIGHT, bottom = this.height - BOTTOM;
    const grid = s("g", { class: "grid" });
    for (const tick of ticks(this.xLow, this.xHigh, this.logX)) grid.append(s("line", { x1: this.x(tick), x2: this.x(tick), y1: TOP, y2: bottom }), s("text", { x: this.x(tick), y: bottom + 16, "text-anchor": "middle" }, plain(tick)));
    if (this.yTitle) for (const tick of ticks(this.yLow, this.yHigh, this.logY)) grid.append(s("line", { x1: LEFT, x2: right, y1: this.y(tick), y2: this.y(tick) }), s("text", { x: LEFT - 6, y: this.y(tick) + 4, "text-anchor": "end" }, plain(tick)));
    grid.append(s("text", { x: (LEFT + right) / 2, y: this.height - 8, "text-anchor": "middle", class: "axis" }, this.xTitle));
    if (this.yTitle) grid.append(s("text", { x: 12, y: (TOP + bottom) / 2, "text-anchor": "middle", class: "axis", transform: `rotate(-90 12 ${(TOP + bottom) / 2})` }, this.yTitle));
    this.svg.append(grid);
    for (const mark of this.marks.filter((m) => m.x2 !== undefined)) this.svg.append(s("rect", { x: this.x(mark.x), width: Math.max(1, this.x(mark.x2) - this.x(mark.x)), y: TOP, height: bottom - TOP, class: `zone ${mark.tone}` }));
    const layers = { band: [], line: [], dots: [] };
    for (const each of this.series) layers[each.kind].push(each);
    for (const each of layers.band) this.svg.append(this.band(each));
    for (const mark of this.marks.filter((m) => m.x2 === undefined)) this.svg.append(this.mark(mark, right, bottom));
    for (const each of layers.line) this.svg.append(s("polyline", { points: each.points.map((p) => `${this.x(p.x)},${this.y(p.y)}`).join(" "), class: `line ${each.tone}`, "stroke-dasharray": each.dash ? "6 4" : null }));
    for (const each of layers.dots) this.svg.append(this.dots(each));
  }

  band(each) {
    const upper = each.points.map((p) => `${this.x(p.x)},${this.y(p.upper)}`);
    const lower = each.points.map((p) => `${this.x(p.x)},${this.y(p.lower)}`).reverse();
    return s("polygon", { points: [...upper, ...lower].join(" "), class: `band ${each.tone}` });
  }

  mark(mark, right, bottom) {
    if (mark.y !== undefined) {
      const y = this.y(mark.y);
      return s("g", { class: `mark ${mark.tone}` }, s("line", { x1: LEFT, x2: right, y1: y, y2: y }), s("text", { x: LEFT + 6, y: y - 5 }, mark.name));
    }
    const x = this.x(mark.x);
    const flip = x > right - 110;
    return s("g", { class: `mark ${mark.tone}` }, s("line", { x1: x, x2: x, y1: 4 + 15 * (mark.row ?? 0), y2: bottom }), s("text", { x: x + (flip ? -5 : 5), y: 12 + 15 * (mark.row ?? 0), "text-anchor": flip ? "end" : "start" }, mark.name));
  }

  dots(each) {
    const group = s("g", { class: `dots ${each.tone}` });
    for (const p of each.points) {
      if (p.lower !== undefined && p.upper !== undefined && p.upper !== p.lower) group.append(s("line", { class: "whisker", x1: this.x(p.x), x2: this.x(p.x), y1: this.y(p.lower), y2: this.y(p.upper) }));
      const at = [this.x(p.x), this.y(p.y)];
      const shape = each.shape === "square" ? s("rect", { x: at[0] - 4, y: at[1] - 4, width: 8, height: 8 }) : each.shape === "diamond" ? s("path", { d: `M${at[0]} ${at[1] - 6}L${at[0] + 6} ${at[1]}L${at[0]} ${at[1] + 6}L${at[0] - 6} ${at[1]}Z` }) : s("circle", { cx: at[0], cy: at[1], r: each.radius ?? 4 });
      if (each.hollow) shape.classList.add("hollow");
      this.told.push({ x: at[0], y: at[1], lines: () => [h("b", {}, p.note ?? each.name), `${this.xTitle}: ${plain(p.x)}`, this.yTitle && `${this.yTitle}: ${plain(p.y)}`, p.more] });
      group.append(shape);
    }
    return group;
  }

  legend() {
    const shown = this.series.filter((each) => each.points.length && each.name && !each.quiet);
    return h("ul", { class: "legend", "aria-hidden": "true" }, shown.map((each) => h("li", {}, s("svg", { viewBox: "0 0 22 12", width: 22, height: 12 },
      each.kind === "line" ? s("line", { x1: 1, x2: 21, y1: 6, y2: 6, class: `line ${each.tone}`, "stroke-dasharray": each.dash ? "6 4" : null })
        : each.kind === "band" ? s("rect", { x: 1, y: 1, width: 20, height: 10, class: `band ${each.tone}` })
          : s("g", { class: `dots ${each.tone}` }, each.shape === "square" ? s("rect", { x: 7, y: 2, width: 8, height: 8, class: each.hollow ? "hollow" : null }) : each.shape === "diamond" ? s("path", { d: "M11 0L17 6L11 12L5 6Z" }) : s("circle", { cx: 11, cy: 6, r: 4, class: each.hollow ? "hollow" : null }))), each.name)));
  }
}

const tip = document.getElementById("tip");

function tell(lines, at) {
  tip.replaceChildren(...lines.filter(Boolean).map((line) => h("div", {}, line)));
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(at.x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.min(at.y + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

const hide = () => { tip.hidden = true; };

export function readout(element, content) {
  const show = (event) => {
    const box = element.getBoundingClientRect();
    tell(content(), { x: event.clientX ?? box.x, y: event.clientY ?? box.y });
  };
  element.addEventListener("pointerenter", show);
  element.addEventListener("pointerleave", hide);
  element.addEventListener("focus", show);
  element.addEventListener("blur", hide);
}

const REACH = 14;

// One readout for all points of a drawing: the nearest under the pointer, and one after another by the arrow keys.
// points: () => [{x, y, lines: () => […]}] in the drawing's own units, in the order of the keys.
export function readouts(svg, points, distance = (p, x, y) => Math.hypot(p.x - x, p.y - y)) {
  let at = -1;
  const scaled = () => {
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return { box, scale: box.width / view.width };
  };
  const near = (event) => {
    const { box, scale } = scaled();
    const x = (event.clientX - box.x) / scale, y = (event.clientY - box.y) / scale;
    let found = null, least = REACH;
    for (const point of points()) {
      const away = distance(point, x, y);
      if (away < least) [found, least] = [point, away];
    }
    found ? tell(found.lines(), { x: event.clientX, y: event.clientY }) : hide();
  };
  const step = (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], all = points();
    if (event.key === "Escape") hide();
    if (!by || !all.length) return;
    at = Math.max(0, Math.min(all.length - 1, at + by));
    const { box, scale } = scaled();
    tell(all[at].lines(), { x: box.x + all[at].x * scale, y: box.y + all[at].y * scale });
    say([...tip.children].map((line) => line.textContent).join(", "));
    event.preventDefault();
  };
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("pointermove", near);
  svg.addEventListener("pointerdown", near);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("keydown", step);
  svg.addEventListener("blur", hide);
}
