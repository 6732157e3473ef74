// Throughput and latencies of a run against concurrency or rate, with targets, knee and each replica on the same axis.
import { Chart, readout } from "./chart.js";
import { h, s } from "./dom.js";
import { buttons } from "./export.js";

const CLOSED = ["Ramp", "Control"], OPEN = ["Open", "Certify", "Baseline"];

const stagesOf = (run, kinds) => (run?.stages ?? []).filter((stage) => kinds.includes(stage.kind) && stage.verdict !== "Void" && stage.verdict !== "Invalid");

function levels(stages, x, y, upper) {
  return stages.filter((stage) => x(stage) !== null && y(stage) !== null).map((stage) => ({
    x: x(stage), y: y(stage), note: stage.name,
    ...(upper && upper(stage) !== null ? { lower: y(stage), upper: upper(stage) } : {}),
    more: `max-num-seqs ${stage.limits.max_num_seqs}, max-num-batched-tokens ${stage.limits.max_num_batched_tokens}; requests: ${stage.requests}`,
  })).sort((a, b) => a.x - b.x);
}

// Only what runs on the setting of the ramp is one curve; other settings are marks of their own.
function groups(run, by) {
  const closed = stagesOf(run, CLOSED.slice(0, 1)), open = stagesOf(run, OPEN);
  const kinds = (kind) => open.filter((stage) => stage.kind === kind);
  return by === "rate"
    ? [["open loop, ceiling", kinds("Open"), "blue", "circle"], ["chosen setting", kinds("Certify"), "green", "diamond"], ["setting before", kinds("Baseline"), "red", "square"]]
    : [["closed loop", closed, "blue", "circle"], ["chosen setting, open loop", kinds("Certify"), "green", "diamond"], ["setting before, open loop", kinds("Baseline"), "red", "square"]];
}

export function charts(view, by, extras) {
  const run = view.run;
  if (!run) return [h("p", { class: "muted" }, "Nothing was measured yet.")];
  const x = by === "rate" ? (stage) => stage.requests_per_second : (stage) => stage.users ?? stage.concurrency;
  const xTitle = by === "rate" ? "requests/s of one replica" : "concurrent requests of one replica";
  const logX = by !== "rate";
  const rows = () => run.stages;
  const knee = run.fit?.knee ?? view.row.knee;
  const marksX = [];
  if (by !== "rate" && knee) marksX.push({ x: knee.lower, x2: knee.upper, tone: "knee" }, { x: knee.concurrency, name: `knee ${+knee.concurrency.toPrecision(3)}`, tone: "knee" });
  const setting = view.recommendation?.limits ?? view.row.in_force;
  if (by !== "rate" && setting?.max_num_seqs) marksX.push({ x: setting.max_num_seqs, name: `max-num-seqs ${setting.max_num_seqs}`, tone: "chosen", row: 1 });
  const promised = view.recommendation?.promised_requests_per_second;
  if (by === "rate" && promised) marksX.push({ x: promised, name: `promised ${promised}`, tone: "chosen" });
  const replicas = view.replicas.filter((r) => r.concurrency !== null);
  const seen = [...groups(run, by).flatMap(([, stages]) => stages.map(x)), ...marksX.map((m) => m.x2 ?? m.x), ...(by === "rate" ? (extras.surface?.predictions ?? []).map((p) => p.requests_per_second) : view.replicas.flatMap((r) => [r.concurrency ?? 0, r.knee_interval?.upper ?? r.knee_concurrency ?? 0]))];
  const xMax = Math.max(1, ...seen);

  const throughput = groups(run, by).map(([name, stages, tone, shape]) => ({ kind: "dots", name, tone, shape, points: levels(stages, x, (stage) => stage.requests_per_second) }));
  if (by !== "rate" && extras.band?.length) {
    const points = extras.band.map((p) => ({ x: p.concurrency, y: p.requests_per_second, lower: p.lower, upper: p.upper }));
    throughput.unshift({ kind: "band", name: "90% band", tone: "blue", points }, { kind: "line", name: "fit", tone: "blue", points });
  }
  const latency = (title, name, p50, p99, upper, target, predicted) => {
    const series = groups(run, by).flatMap(([label, stages, tone, shape]) => [
      ...(tone === "blue" ? [{ kind: "line", tone, points: levels(stages, x, p99), quiet: true, name: "" }, { kind: "line", tone, dash: true, points: levels(stages, x, p50), quiet: true, name: "" }] : []),
      { kind: "dots", name: `P99, ${label}`, tone, shape, points: levels(stages, x, p99, upper) },
      { kind: "dots", name: tone === "blue" ? "P50 (hollow)" : "", tone, shape, hollow: true, points: levels(stages, x, p50) },
    ]);
    if (by === "rate" && extras.surface) series.unshift({ kind: "line", name: "twin: upper 90% of P99", tone: "orange", dash: true, points: extras.surface.predictions.map((p) => ({ x: p.requests_per_second, y: predicted(p) })) });
    const marks = [...marksX];
    if (target !== null && target !== undefined) marks.push({ y: target, name: `target ${target} ms`, tone: "target" });
    if (title.includes("output") && by !== "rate" && run.fit?.tpot_boundary) marks.push({ x: run.fit.tpot_boundary.lower, x2: run.fit.tpot_boundary.upper, tone: "bound" });
    return new Chart({ name, title, xTitle, yTitle: "ms", series, marks, logX, logY: true, xMax, rows }).element;
  };
  const bound = view.recommendation && view.recommendation.bound_by;
  return [
    h("div", { class: "stack" },
      new Chart({ name: `${run.name}-throughput`, title: "Throughput", xTitle, yTitle: "requests/s", series: throughput, marks: marksX, logX, xMax, rows }).element,
      by === "rate" ? null : strip(view, replicas, xMax, knee)),
    h("div", { class: "stack apart" }, latency("Time to first token", `${run.name}-ttft`, (stage) => stage.p50_ttft_ms, (stage) => stage.p99_ttft_ms, (stage) => stage.p99_ttft_upper_ms, run.slo?.p99_ttft_ms, (p) => p.p99_ttft_ms),
    latency("Time per output token", `${run.name}-tpot`, (stage) => stage.p50_tpot_ms, (stage) => stage.p99_tpot_ms, (stage) => stage.p99_tpot_upper_ms, run.slo?.p99_tpot_ms, (p) => p.p99_tpot_ms)),
    run.slo?.p99_e2e_ms ? latency("Time of a whole request", `${run.name}-e2e`, (stage) => stage.p50_e2e_ms, (stage) => stage.p99_e2e_ms, (stage) => stage.p99_e2e_upper_ms, run.slo.p99_e2e_ms, (p) => p.p99_e2e_ms) : null,
    bound && h("p", { class: "muted note wide" }, "The chosen setting is bound by ", h("b", {}, bound), by === "rate" ? "." : ". Shaded: the 90% interval of the knee, and of the concurrency where P99 TPOT meets its target. Whiskers: 95% upper bounds of P99s."),
  ];
}

const LEFT = 54, RIGHT = 14, WIDTH = 560;

function dot(replica, over, x, y, step) {
  if (over) return s("rect", { x: x - 3, y: y - 3, width: 6, height: 6 });
  if (replica.outlier) return s("path", { d: `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z` });
  return s("circle", { cx: x, cy: y, r: step < 5 ? 2.4 : 4 });
}

// Each replica on the axis of the chart above: a dot where it works now, a tick at its knee, the way between as a line.
function strip(view, replicas, xMax, knee) {
  if (!view.replicas.length) return h("p", { class: "muted note" }, "No replica was seen yet.");
  const sorted = [...view.replicas].sort((a, b) => (a.headroom_percent ?? 101) - (b.headroom_percent ?? 101));
  const step = Math.min(16, 300 / sorted.length);
  const height = Math.max(70, sorted.length * step + 46);
  const low = 1, high = xMax * 1.12;
  const x = (value) => +(LEFT + (Math.log(Math.max(value, low) / low) / Math.log(high / low)) * (WIDTH - LEFT - RIGHT)).toFixed(2);
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": "Replicas: where each works now, and its knee, in concurrent requests" });
  if (knee) svg.append(s("rect", { x: x(knee.lower), width: Math.max(1, x(knee.upper) - x(knee.lower)), y: 4, height: height - 40, class: "zone knee" }));
  sorted.forEach((replica, index) => {
    const y = 10 + index * step;
    const over = replica.headroom_percent !== null && replica.headroom_percent < 0;
    const group = s("g", { class: `replica ${over ? "red" : replica.outlier ? "orange" : "green"}` });
    const own = replica.knee_interval;
    if (own) group.append(s("line", { x1: x(own.lower), x2: x(own.upper), y1: y, y2: y, class: "own" }));
    if (replica.concurrency !== null && replica.knee_concurrency !== null) group.append(s("line", { x1: x(replica.concurrency), x2: x(replica.knee_concurrency), y1: y, y2: y, class: "way" }));
    if (replica.knee_concurrency !== null) group.append(s("line", { x1: x(replica.knee_concurrency), x2: x(replica.knee_concurrency), y1: y - Math.max(1.5, Math.min(6, step)), y2: y + Math.max(1.5, Math.min(6, step)), class: "tick" }));
    if (replica.concurrency !== null) group.append(dot(replica, over, x(replica.concurrency), y, step));
    readout(group, () => [h("b", {}, replica.pod), `${replica.node} ${replica.gpu_product}`, `now ${replica.concurrency ?? "unknown"} (${replica.running ?? "?"} running, ${replica.waiting ?? "?"} waiting)`, `knee ${replica.knee_concurrency ?? "unknown"}${own ? ` (${own.lower} to ${own.upper}, from its own metrics)` : replica.knee_source === "Run" ? " (of the last run)" : ""}`, replica.outlier, replica.headroom_percent === null ? null : `headroom ${replica.headroom_percent}%`]);
    svg.append(group);
  });
  svg.append(s("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: height - 8, "text-anchor": "middle", class: "axis" }, "each replica, least headroom first: ● now, | knee, ■ above capacity, ◆ unlike its peers"));
  return h("figure", { class: "chart-box joined" }, h("figcaption", {}, h("b", {}, "Replicas against their knee"), h("span", { class: "grow" }), buttons(`${view.row.name}-replicas`, { svg: () => svg, rows: () => view.replicas, value: () => view.replicas })), svg);
}
