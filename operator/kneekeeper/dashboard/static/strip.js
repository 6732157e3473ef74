// Each replica on the axis of the throughput above: a dot where it works now, a tick at its knee, the way between as a
// line. All that looks the same is one path, so that an update sets a few attributes, however many replicas there are.
import { readouts } from "./chart.js";
import { h, s } from "./dom.js";
import { buttons } from "./export.js";

const LEFT = 54, RIGHT = 14, WIDTH = 560, TOP = 10, LOW = 1;
const MARGIN = 1.12; // as the chart above
const TONES = ["green", "orange", "red"];

const over = (replica) => replica.headroom_percent !== null && replica.headroom_percent < 0;
const toneOf = (replica) => (over(replica) ? "red" : replica.outlier ? "orange" : "green");

function dot(replica, x, y, r) {
  if (over(replica)) return `M${x - 3} ${y - 3}h6v6h-6z`;
  if (replica.outlier) return `M${x} ${y - 5}l5 5l-5 5l-5 -5z`;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
}

function lines(replica) {
  const own = replica.knee_interval;
  return [h("b", {}, replica.pod), `${replica.node} ${replica.gpu_product}`,
    `now ${replica.concurrency ?? "unknown"} (${replica.running ?? "?"} running, ${replica.waiting ?? "?"} waiting)`,
    `knee ${replica.knee_concurrency ?? "unknown"}${own ? ` (${own.lower} to ${own.upper}, from its own metrics)` : replica.knee_source === "Run" ? " (of the last run)" : ""}`,
    replica.outlier, replica.headroom_percent === null ? null : `headroom ${replica.headroom_percent}%`];
}

export class Strip {
  constructor(name) {
    this.replicas = [];
    this.points = [];
    const path = (tone, part) => s("path", { class: `replica ${tone} ${part}` });
    this.zone = s("rect", { y: 4, class: "zone knee" });
    this.paths = Object.fromEntries([["own", path("", "own")], ...TONES.map((tone) => [`way ${tone}`, path(tone, "way")]), ["tick", path("", "tick")], ...TONES.map((tone) => [`dot ${tone}`, path(tone, "dot")])]);
    this.axis = s("text", { x: (LEFT + WIDTH - RIGHT) / 2, "text-anchor": "middle", class: "axis" }, "each replica, least headroom first: ● now, | knee, ■ above capacity, ◆ unlike its peers");
    this.svg = s("svg", { class: "chart", role: "img", "aria-label": "Replicas: where each works now, and its knee, in concurrent requests. Arrow keys tell each replica." }, this.zone, Object.values(this.paths), this.axis);
    this.element = h("figure", { class: "chart-box joined" }, h("figcaption", {}, h("b", {}, "Replicas against their knee"), h("span", { class: "grow" }), buttons(`${name}-replicas`, { svg: () => this.svg, rows: () => this.replicas, value: () => this.replicas })), this.svg);
    readouts(this.svg, () => this.points, (point, x, y) => Math.abs(point.y - y));
  }

  draw(replicas, { xMax, knee }) {
    const sorted = [...replicas].sort((a, b) => (a.headroom_percent ?? 101) - (b.headroom_percent ?? 101));
    const step = Math.min(16, 300 / Math.max(1, sorted.length)), tick = Math.max(1.5, Math.min(6, step)), r = step < 5 ? 2.4 : 4;
    const height = Math.max(70, sorted.length * step + 46);
    const x = (value) => +(LEFT + (Math.log(Math.max(value, LOW) / LOW) / Math.log((xMax * MARGIN) / LOW)) * (WIDTH - LEFT - RIGHT)).toFixed(2);
    const d = Object.fromEntries(Object.keys(this.paths).map((each) => [each, ""]));
    this.replicas = replicas;
    this.points = sorted.map((replica, index) => {
      const y = +(TOP + index * step).toFixed(2), tone = toneOf(replica), own = replica.knee_interval;
      const now = replica.concurrency === null ? null : x(replica.concurrency), at = replica.knee_concurrency === null ? null : x(replica.knee_concurrency);
      if (own) d.own += `M${x(own.lower)} ${y}H${x(own.upper)}`;
      if (now !== null && at !== null) d[`way ${tone}`] += `M${now} ${y}H${at}`;
      if (at !== null) d.tick += `M${at} ${y - tick}v${2 * tick}`;
      if (now !== null) d[`dot ${tone}`] += dot(replica, now, y, r);
      return { x: now ?? at ?? LEFT, y, lines: () => lines(replica) };
    });
    for (const [name, path] of Object.entries(this.paths)) path.setAttribute("d", d[name]);
    this.zone.setAttribute("visibility", knee ? "visible" : "hidden");
    if (knee) for (const [name, value] of Object.entries({ x: x(knee.lower), width: Math.max(1, x(knee.upper) - x(knee.lower)), height: height - 40 })) this.zone.setAttribute(name, value);
    this.axis.setAttribute("y", height - 8);
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  }
}
