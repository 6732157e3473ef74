// Throughput and latencies of a run against concurrency or rate, with targets, knee and each replica on the same axis.
import { Chart } from "./chart.js";
import { h } from "./dom.js";

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

const along = (by) => (by === "rate" ? (stage) => stage.requests_per_second : (stage) => stage.users ?? stage.concurrency);

const ROUND = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

// The axis is the same for somewhat different loads: curves that stay as they are need not be drawn anew for it.
function rounded(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return +(ROUND.find((each) => each * power >= value * (1 - 1e-9)) * power).toPrecision(3);
}

// What all charts share: marks along the axis, and where it ends.
export function axisOf(view, by, extras) {
  const run = view.run, x = along(by);
  const knee = run?.fit?.knee ?? view.row.knee;
  const marksX = [];
  if (by !== "rate" && knee) marksX.push({ x: knee.lower, x2: knee.upper, tone: "knee" }, { x: knee.concurrency, name: `knee ${+knee.concurrency.toPrecision(3)}`, tone: "knee" });
  const setting = view.recommendation?.limits ?? view.row.in_force;
  if (by !== "rate" && setting?.max_num_seqs) marksX.push({ x: setting.max_num_seqs, name: `max-num-seqs ${setting.max_num_seqs}`, tone: "chosen", row: 1 });
  const promised = view.recommendation?.promised_requests_per_second;
  if (by === "rate" && promised) marksX.push({ x: promised, name: `promised ${promised}`, tone: "chosen" });
  const seen = [...groups(run, by).flatMap(([, stages]) => stages.map(x)), ...marksX.map((m) => m.x2 ?? m.x), ...(by === "rate" ? (extras.surface?.predictions ?? []).map((p) => p.requests_per_second) : [])];
  const working = by === "rate" ? [] : view.replicas.flatMap((r) => [r.concurrency ?? 0, r.knee_interval?.upper ?? r.knee_concurrency ?? 0]);
  return { knee, marksX, xMax: Math.max(1, ...seen, rounded(Math.max(1, ...working))) };
}

// `below`: what stands under the throughput, on the same axis.
export function charts(view, by, extras, { marksX, xMax }, below) {
  const run = view.run, x = along(by);
  if (!run) return [h("p", { class: "muted wide" }, "Nothing was measured yet."), below];
  const xTitle = by === "rate" ? "requests/s of one replica" : "concurrent requests of one replica";
  const logX = by !== "rate";
  const rows = () => run.stages;
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
      below),
    h("div", { class: "stack apart" }, latency("Time to first token", `${run.name}-ttft`, (stage) => stage.p50_ttft_ms, (stage) => stage.p99_ttft_ms, (stage) => stage.p99_ttft_upper_ms, run.slo?.p99_ttft_ms, (p) => p.p99_ttft_ms),
    latency("Time per output token", `${run.name}-tpot`, (stage) => stage.p50_tpot_ms, (stage) => stage.p99_tpot_ms, (stage) => stage.p99_tpot_upper_ms, run.slo?.p99_tpot_ms, (p) => p.p99_tpot_ms)),
    run.slo?.p99_e2e_ms ? latency("Time of a whole request", `${run.name}-e2e`, (stage) => stage.p50_e2e_ms, (stage) => stage.p99_e2e_ms, (stage) => stage.p99_e2e_upper_ms, run.slo.p99_e2e_ms, (p) => p.p99_e2e_ms) : null,
    bound && h("p", { class: "muted note wide" }, "The chosen setting is bound by ", h("b", {}, bound), by === "rate" ? "." : ". Shaded: the 90% interval of the knee, and of the concurrency where P99 TPOT meets its target. Whiskers: 95% upper bounds of P99s."),
  ];
}
