// What production's metrics tell: each replica against its own knee and its peers, all together, and the traffic.
import { Chart } from "./chart.js";
import { badge, fact, h, num, table, time } from "./dom.js";
import { buttons } from "./export.js";
import { headroom } from "./fleet.js";

const MOST_ROWS = 25; // the table is for what stands out; the chart above and the CSV have all

const between = (low, high, unit = "") => [num(low), " to ", num(high, unit)];

function knee(replica) {
  const within = replica.knee_interval;
  const doubt = within ? between(within.lower, within.upper) : replica.knee_at_least === null ? null : ["above ", num(replica.knee_at_least)];
  return h("td", {}, num(replica.knee_concurrency), doubt && h("span", { class: "sub" }, doubt));
}

const from = (replica) => h("td", {}, { Production: "its own metrics", Run: "the last run" }[replica.knee_source] ?? "–", replica.not_observed && h("span", { class: "sub" }, replica.not_observed));

function why(replica) {
  const ranks = replica.ranks.map((rank) => [" rank ", rank.rank, ": ", num(rank.knee_concurrency)]);
  return h("td", { class: "text" }, replica.message, ranks.length ? h("span", { class: "sub" }, "Knees of its ranks:", ranks) : null);
}

function row(replica) {
  const cell = (value, unit) => h("td", { class: "right" }, num(value, unit));
  return h("tr", {}, h("th", { scope: "row" }, replica.pod, h("span", { class: "sub" }, replica.node, " ", replica.gpu_product)),
    h("td", {}, replica.outlier ? badge(replica.outlier, "warn") : "–"), cell(replica.speed_percent, "%"), knee(replica), from(replica),
    cell(replica.concurrency), h("td", {}, headroom(replica)), cell(replica.requests_per_second, "/s"), cell(replica.capacity_requests_per_second, "/s"), why(replica));
}

function replicas(view) {
  if (!view.replicas.length) return [h("p", { class: "muted" }, "No replica was seen yet.")];
  const order = (replica) => [replica.outlier ? 0 : 1, replica.headroom_percent ?? 101];
  const sorted = [...view.replicas].sort((a, b) => order(a)[0] - order(b)[0] || order(a)[1] - order(b)[1]);
  const shown = sorted.slice(0, MOST_ROWS);
  const heads = ["Replica", "Stands out", "Speed", "Knee", "Known from", "In flight", "Headroom", "Load", "Capacity", "Why"];
  return [table("Each replica", heads, shown.map(row)),
    sorted.length > shown.length ? h("p", { class: "muted note" }, "Outliers first, then least headroom: ", String(shown.length), " of ", String(sorted.length), " replicas; the CSV of the chart above has all.") : null];
}

function scale(view) {
  const given = view.scale;
  if (!given) return [h("p", { class: "muted" }, "How many replicas the traffic needs is not known yet: it takes an hour of history in Prometheus.")];
  return [
    h("p", {}, given.needed_replicas === given.replicas ? badge("Fits", "good") : badge(given.needed_replicas > given.replicas ? "Too few replicas" : "More than needed", given.needed_replicas > given.replicas ? "bad" : "warn"), " ", given.message),
    h("div", { class: "facts" },
      fact("Replicas needed", num(given.needed_replicas), h("span", { class: "sub inline" }, "of ", num(given.replicas))),
      fact("Peak of the last day", num(given.peak_requests_per_second, "/s")), fact("All carry together", num(given.capacity_requests_per_second, "/s")),
      fact("Fullest over its part", num(given.imbalance_percent, "%")),
      given.lost_percent !== null && fact("Lost by one setting", num(given.lost_percent, "%"), h("span", { class: "sub inline" }, given.weakest_gpu_product))),
  ];
}

function ago(text) {
  const minutes = Math.max(0, (Date.now() - new Date(text)) / 60_000);
  return minutes < 60 ? `${Math.round(minutes)} min ago` : minutes < 2880 ? `${Math.round(minutes / 60)} h ago` : `${Math.round(minutes / 1440)} days ago`;
}

const CONFIDENCE = { High: "good", Medium: "warn", Low: "bad" };

function hours(view) {
  const at = (name) => view.traffic.hours.filter((hour) => hour[name] !== null).map((hour) => ({ x: hour.hour, y: hour[name], note: `${hour.hour}:00` }));
  const drawn = (name, tone, label) => [{ kind: "line", name: "", tone, points: at(name), quiet: true }, { kind: "dots", name: label, tone, points: at(name), radius: 3 }];
  const shared = { xTitle: "hour of the day, UTC", xMax: 23, rows: () => view.traffic.hours, height: 220 };
  return h("div", { class: "hours" },
    new Chart({ name: `${view.row.name}-rate-by-hour`, title: "Requests by hour", yTitle: "requests/s", series: drawn("requests_per_second", "blue", "all replicas"), ...shared }).element,
    new Chart({ name: `${view.row.name}-lengths-by-hour`, title: "Lengths by hour", yTitle: "tokens, mean", series: [...drawn("prompt_tokens_mean", "blue", "prompts"), ...drawn("output_tokens_mean", "orange", "answers")], ...shared }).element);
}

function traffic(view) {
  const given = view.traffic;
  if (!given) return [h("p", { class: "muted" }, "No workload was learned yet: that takes a Prometheus server that scrapes the pods, and 300 finished requests.")];
  const lengths = (each) => (each ? [num(each.mean_tokens), h("span", { class: "sub inline" }, "P99 ", between(each.p99_lower_tokens, each.p99_upper_tokens))] : num(null));
  return [
    h("p", {}, badge(`Confidence ${given.confidence}`, CONFIDENCE[given.confidence]), " Learned ", given.learned_at ? [ago(given.learned_at), " (", time(given.learned_at), ")"] : "", " from ", num(given.requests), " requests in ", num(given.seen_hours, "h"), given.measured_with ? ". Runs are measured with it." : ". Runs are measured with spec.workload instead."),
    given.drift ? h("p", {}, badge("The traffic moved", "warn"), " since ", time(given.drift_since), ": ", given.drift) : null,
    h("div", { class: "facts" },
      fact("Prompt tokens", lengths(given.prompt)), fact("Answer tokens", lengths(given.output)), fact("Arrivals", given.arrivals),
      fact("Prefix cache hits", num(given.prefix_cache_hit_percent, "%")), fact("Mean rate", num(given.requests_per_second, "/s")),
      fact("Busiest hour", num(given.peak_requests_per_second, "/s")), fact("Most in flight", num(given.concurrency))),
    given.hours.length ? hours(view) : null,
  ];
}

export const PARTS = { scale, replicas, traffic };

// The headings, and under each a body for what its part makes of a view. `view`: () => the newest.
export function production(name, view) {
  const bodies = { scale: h("div"), replicas: h("div"), traffic: h("div") };
  const value = () => ({ scale: view().scale, traffic: view().traffic, replicas: view().replicas });
  const elements = [
    h("h3", {}, "All replicas together", h("span", { class: "grow" }), buttons(`${name}-production`, { value })), bodies.scale,
    h("h3", {}, "Each replica"), bodies.replicas,
    h("h3", {}, "The traffic"), bodies.traffic,
  ];
  return { bodies, elements };
}
