// The twin's surface over both limits as a heat map, and what-if: sliders whose answer the server computes.
import * as api from "./api.js";
import { readout } from "./chart.js";
import { badge, h, num, s, say } from "./dom.js";
import { buttons } from "./export.js";

// Cividis (Nuñez et al., 2018): reads the same with and without colour vision deficiency.
const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];

export function colour(share) {
  const at = Math.max(0, Math.min(1, share)) * (CIVIDIS.length - 1);
  const [a, b] = [CIVIDIS[Math.floor(at)], CIVIDIS[Math.ceil(at)]];
  return `rgb(${a.map((value, index) => Math.round(value + (b[index] - value) * (at - Math.floor(at)))).join(",")})`;
}

export function heatMap(run, surface, pick) {
  const sequences = [...new Set(surface.cells.map((cell) => cell.max_num_seqs))].sort((a, b) => a - b);
  const budgets = [...new Set(surface.cells.map((cell) => cell.max_num_batched_tokens))].sort((a, b) => b - a);
  const best = Math.max(...surface.cells.map((cell) => cell.requests_per_second));
  const [left, top, right, bottom, width] = [64, 8, 8, 46, 560];
  const cellWidth = (width - left - right) / sequences.length, cellHeight = Math.min(44, Math.max(26, 260 / budgets.length));
  const height = top + budgets.length * cellHeight + bottom;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart heat", role: "group", "aria-label": "Highest rate that holds the targets, for each pair of limits" });
  budgets.forEach((budget, row) => svg.append(s("text", { x: left - 6, y: top + (row + 0.5) * cellHeight + 4, "text-anchor": "end" }, String(budget))));
  sequences.forEach((value, column) => svg.append(s("text", { x: left + (column + 0.5) * cellWidth, y: height - bottom + 16, "text-anchor": "middle" }, String(value))));
  svg.append(s("text", { x: (left + width) / 2, y: height - 8, "text-anchor": "middle", class: "axis" }, "max-num-seqs"), s("text", { x: 12, y: height / 2 - 20, "text-anchor": "middle", class: "axis", transform: `rotate(-90 12 ${height / 2 - 20})` }, "max-num-batched-tokens"));
  for (const cell of surface.cells) {
    const x = left + sequences.indexOf(cell.max_num_seqs) * cellWidth, y = top + budgets.indexOf(cell.max_num_batched_tokens) * cellHeight;
    const share = best > 0 ? cell.requests_per_second / best : 0;
    const chosen = cell.max_num_seqs === surface.setting.max_num_seqs && cell.max_num_batched_tokens === surface.setting.max_num_batched_tokens;
    const group = s("g", { class: "cell", tabindex: "0", role: "button", "aria-label": `max-num-seqs ${cell.max_num_seqs}, max-num-batched-tokens ${cell.max_num_batched_tokens}: ${cell.requests_per_second} requests/s${chosen ? ", chosen" : ""}` },
      s("rect", { x: x + 0.5, y: y + 0.5, width: cellWidth - 1, height: cellHeight - 1, fill: cell.requests_per_second > 0 ? colour(share) : "transparent", class: cell.requests_per_second > 0 ? "value" : "value none" }),
      s("text", { x: x + cellWidth / 2, y: y + cellHeight / 2 + 4, "text-anchor": "middle", class: cell.requests_per_second > 0 ? (share < 0.55 ? "on-dark" : "on-light") : null }, cell.requests_per_second > 0 ? String(cell.requests_per_second) : "none"),
      chosen && s("rect", { x: x + 2, y: y + 2, width: cellWidth - 4, height: cellHeight - 4, class: "chosen-cell" }));
    const use = () => pick(cell);
    group.addEventListener("click", use);
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        use();
        event.preventDefault();
      }
    });
    readout(group, () => [h("b", {}, `${cell.max_num_seqs} / ${cell.max_num_batched_tokens}`), `${cell.requests_per_second} requests/s`, chosen ? "chosen" : "press to ask about it"]);
    svg.append(group);
  }
  return h("figure", { class: "chart-box" },
    h("figcaption", {}, h("b", {}, "Capacity over both limits"), h("span", { class: "grow" }), buttons(`${run.name}-surface`, { svg: () => svg, rows: () => surface.cells, value: () => surface })),
    svg, h("p", { class: "muted note" }, "Highest requests/s at which the twin, with the law fitted to this run, holds the targets. Framed: the chosen setting."));
}

const nearest = (values, value) => values.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));

export class WhatIf {
  constructor(run, surface) {
    this.run = run;
    const unique = (field) => [...new Set(surface.cells.map((cell) => cell[field]))].sort((a, b) => a - b);
    this.values = { maxNumSeqs: unique("max_num_seqs"), maxNumBatchedTokens: unique("max_num_batched_tokens") };
    const best = Math.max(...surface.cells.map((cell) => cell.requests_per_second));
    const cell = surface.cells.find((c) => c.max_num_seqs === surface.setting.max_num_seqs && c.max_num_batched_tokens === surface.setting.max_num_batched_tokens);
    this.inputs = {
      maxNumSeqs: this.slider("max-num-seqs", this.values.maxNumSeqs, surface.setting.max_num_seqs),
      maxNumBatchedTokens: this.slider("max-num-batched-tokens", this.values.maxNumBatchedTokens, surface.setting.max_num_batched_tokens),
      requestsPerSecond: this.range("requests/s", 1.3 * best, 0.8 * (cell?.requests_per_second || best)),
      p99TTFTms: this.range("P99 TTFT target, ms", run.slo?.p99_ttft_ms ? 3 * run.slo.p99_ttft_ms : 0, run.slo?.p99_ttft_ms),
      p99TPOTms: this.range("P99 TPOT target, ms", run.slo?.p99_tpot_ms ? 3 * run.slo.p99_tpot_ms : 0, run.slo?.p99_tpot_ms),
    };
    this.answer = h("div", { class: "answer", role: "status", "aria-live": "polite" });
    this.element = h("section", { class: "chart-box what-if", "aria-label": "What if" }, h("b", {}, "What if"), h("p", { class: "muted note" }, "The server runs the twin for these values; nothing is changed in the cluster."), Object.values(this.inputs).map((each) => each?.element), this.answer);
    this.ask();
  }

  slider(title, values, value) {
    const start = values.indexOf(nearest(values, value));
    return this.control(title, { min: 0, max: values.length - 1, step: 1, value: Math.max(0, start) }, (raw) => values[raw]);
  }

  range(title, high, value) {
    if (!high || !value) return null;
    const step = high / 200;
    return this.control(title, { min: step, max: high, step: "any", value }, (raw) => +raw.toPrecision(3));
  }

  control(title, attributes, read) {
    const output = h("output", { "data-asked": true });
    const input = h("input", { type: "range", ...attributes, "aria-label": title, oninput: () => this.changed() });
    const value = () => read(Number(input.value));
    const show = () => {
      output.textContent = value();
      input.setAttribute("aria-valuetext", value());
    };
    show();
    return { element: h("label", { class: "slider" }, h("span", {}, title), input, output), input, value, show };
  }

  pick(cell) {
    this.inputs.maxNumSeqs.input.value = this.values.maxNumSeqs.indexOf(cell.max_num_seqs);
    this.inputs.maxNumBatchedTokens.input.value = this.values.maxNumBatchedTokens.indexOf(cell.max_num_batched_tokens);
    this.changed();
    this.element.scrollIntoView({ block: "nearest" });
  }

  changed() {
    for (const each of Object.values(this.inputs)) each?.show();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 250);
  }

  async ask() {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    this.answer.classList.add("stale");
    if (!this.answer.hasChildNodes()) this.answer.textContent = "The twin runs…";
    const question = Object.fromEntries(Object.entries(this.inputs).filter(([, each]) => each).map(([name, each]) => [name, each.value()]));
    try {
      const found = await api.whatIf(this.run, question, asking.signal);
      const over = (value, target) => (target !== null && value > target ? "bad" : "");
      const line = (title, value, unit, tone = "") => h("div", { class: `fact ${tone}` }, h("span", {}, title), num(value, unit));
      this.answer.replaceChildren(
        badge(found.holds ? "Holds the targets" : "Misses the targets", found.holds ? "good" : "bad"),
        line("highest rate that holds", found.highest_requests_per_second, "/s"),
        line("P99 TTFT at most", found.p99_ttft_ms, "ms", over(found.p99_ttft_ms, found.target_ttft_ms)),
        line("P99 TPOT at most", found.p99_tpot_ms, "ms", over(found.p99_tpot_ms, found.target_tpot_ms)),
        line("P99 of a whole request at most", found.p99_e2e_ms, "ms"),
        h("p", { class: "muted note" }, "In nine of ten predictions."));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.answer.textContent = error.message;
      say(error.message);
    }
    this.answer.classList.remove("stale");
  }
}
