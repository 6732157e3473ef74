// Every profile in one table: sorted by any column, filtered by words, changed in place.
import { badge, h, keepingFocus, limits, num } from "./dom.js";
import { buttons } from "./export.js";
import { Slices } from "./slices.js";

export const slo = (targets) => {
  const parts = [["TTFT", targets.p99_ttft_ms], ["TPOT", targets.p99_tpot_ms], ["E2E", targets.p99_e2e_ms]].filter(([, value]) => value !== null);
  return parts.length ? parts.map(([name, value]) => h("span", { class: "target" }, `${name} `, num(value, "ms"))) : h("span", { class: "muted" }, "none");
};

export function stateBadge(row) {
  if (row.suspended) return badge("Suspended", "plain");
  if (row.active_run) return badge(row.stage || "Running", "busy");
  const tone = row.reason === "AwaitsApproval" ? "warn" : ({ True: "good", False: "bad" }[row.ready] ?? "warn");
  return badge(row.reason || row.stage || "Pending", tone);
}

export function headroom(row) {
  const value = row.headroom_percent;
  if (value === null) return h("span", { class: "muted" }, "–");
  const tone = value < 0 ? "bad" : value < 15 ? "warn" : "good";
  return h("span", { class: `meter ${tone}` },
    h("progress", { max: 100, value: Math.max(0, Math.min(100, value)), "aria-hidden": "true" }), num(value, "%"));
}

// `of`: the fields of a row that a cell shows. While they stay, so does the cell.
const COLUMNS = [
  { id: "name", of: ["namespace", "name"], title: "Profile", value: (r) => `${r.namespace}/${r.name}`, cell: (r) => [h("a", { href: `#/p/${encodeURIComponent(r.namespace)}/${encodeURIComponent(r.name)}` }, r.name), h("span", { class: "sub" }, r.namespace)] },
  { id: "model", of: ["model", "gpu_product"], title: "Model", value: (r) => r.model, cell: (r) => [h("span", {}, r.model || "–"), h("span", { class: "sub" }, r.gpu_product)] },
  { id: "state", of: ["suspended", "active_run", "stage", "reason", "ready", "mode"], title: "State", value: (r) => `${r.ready} ${r.reason}`, cell: (r) => [stateBadge(r), h("span", { class: "sub" }, r.mode)] },
  { id: "slo", of: ["slo"], title: "P99 targets", value: (r) => r.slo.p99_ttft_ms ?? r.slo.p99_tpot_ms, cell: (r) => slo(r.slo) },
  { id: "limits", of: ["in_force"], title: "Limits in force", value: (r) => r.in_force?.max_num_seqs, cell: (r) => limits(r.in_force) },
  { id: "replicas", of: ["replicas"], title: "Replicas", value: (r) => r.replicas, cell: (r) => num(r.replicas), number: true },
  { id: "knee", of: ["knee"], title: "Knee", value: (r) => r.knee?.concurrency, cell: (r) => (r.knee ? [num(r.knee.concurrency), h("span", { class: "sub" }, num(r.knee.lower), " to ", num(r.knee.upper))] : num(null)), number: true },
  { id: "capacity", of: ["capacity_requests_per_second"], title: "Capacity /s", value: (r) => r.capacity_requests_per_second, cell: (r) => num(r.capacity_requests_per_second), number: true },
  { id: "bound", of: ["bound_by"], title: "Bound by", value: (r) => r.bound_by, cell: (r) => r.bound_by ?? "–" },
  { id: "headroom", of: ["headroom_percent"], title: "Least headroom", value: (r) => r.headroom_percent, cell: headroom },
];

const shownOf = (column, row) => Object.fromEntries(column.of.map((field) => [field, row[field]]));

const differ = (column, before, row) => column.of.some((field) => JSON.stringify(before[field]) !== JSON.stringify(row[field]));

export class Fleet {
  constructor(root, route, state) {
    Object.assign(this, { root, route, state, lines: new Map(), slices: new Slices() });
    this.filter = h("input", { id: "filter", type: "search", placeholder: "Filter: name, model, GPU, state …  (press /)", "aria-label": "Filter profiles", value: route.query.get("q") ?? "", oninput: () => this.remember() });
    this.count = h("span", { class: "muted", role: "status" });
    // Rows are grids, so that those out of sight cost nothing; the roles say that it is a table all the same.
    this.heads = COLUMNS.map((column) => h("th", { scope: "col", role: "columnheader", class: column.number ? "right" : null }, h("button", { type: "button", class: "head", onclick: () => this.sortBy(column.id) }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }))));
    this.body = h("tbody", { role: "rowgroup" });
    this.table = h("table", { class: "fleet", role: "table", "aria-label": "Serving profiles" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)), this.body);
    this.cards = h("div", { class: "cards" });
    root.replaceChildren(
      h("h1", {}, "Fleet"),
      this.cards,
      h("div", { class: "bar" }, this.filter, this.count, h("span", { class: "grow" }), buttons("fleet", { rows: () => this.shown(), value: () => this.shown() })),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of profiles" }, this.table),
      h("p", { class: "muted" }, `Limits are max-num-seqs / max-num-batched-tokens. Capacity is the certified rate of one replica. Source: ${state.source}; kneekeeper ${state.version}.`));
    this.render();
  }

  close() {
    this.slices.close();
  }

  moved(route) {
    this.route = route;
    if (this.filter.value !== (route.query.get("q") ?? "")) this.filter.value = route.query.get("q") ?? "";
    this.render();
  }

  get sort() {
    const text = this.route.query.get("sort") ?? "headroom";
    return { id: text.replace(/^-/, ""), down: text.startsWith("-") };
  }

  sortBy(id) {
    const next = this.sort.id === id && !this.sort.down ? `-${id}` : id;
    this.go({ sort: next });
  }

  remember() {
    this.go({ q: this.filter.value }, true);
  }

  go(changes, silently = false) {
    const query = new URLSearchParams(this.route.query);
    for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
    history[silently ? "replaceState" : "pushState"](null, "", query.size ? `#/?${query}` : "#/");
    this.route = { ...this.route, query };
    this.render();
  }

  shown() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (r) => `${r.namespace}/${r.name} ${r.model} ${r.gpu_product} ${r.reason} ${r.stage} ${r.mode} ${r.bound_by ?? ""} ${r.target} ${r.suspended ? "suspended" : ""} ${r.active_run ? "measuring" : ""} ${r.ready === "False" && !r.active_run && !r.suspended ? "attention" : ""} ${r.headroom_percent !== null && r.headroom_percent < 0 ? "over" : ""}`.toLowerCase();
    const rows = [...this.state.rows.values()].filter((row) => words.every((word) => text(row).includes(word)));
    const { id, down } = this.sort;
    const value = COLUMNS.find((column) => column.id === id)?.value ?? COLUMNS[0].value;
    const empty = (v) => v === null || v === undefined || v === "";
    return rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (empty(x) || empty(y)) return empty(x) - empty(y) || COLUMNS[0].value(a).localeCompare(COLUMNS[0].value(b));
      const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y));
      return (down ? -order : order) || COLUMNS[0].value(a).localeCompare(COLUMNS[0].value(b));
    });
  }

  line(row) {
    const key = `${row.namespace}/${row.name}`;
    const known = this.lines.get(key);
    const make = (column, index) => h(index ? "td" : "th", { role: index ? "cell" : "rowheader", scope: index ? null : "row", class: column.number ? "right" : null, "data-title": column.title }, column.cell(shownOf(column, row)));
    if (!known) {
      const cells = COLUMNS.map(make);
      this.lines.set(key, { row, cells, element: h("tr", { role: "row" }, cells) });
    } else if (known.row !== row) {
      COLUMNS.forEach((column, index) => {
        if (differ(column, known.row, row)) known.cells[index].replaceChildren(...make(column, index).childNodes);
      });
      known.row = row;
    }
    return this.lines.get(key).element;
  }

  render() {
    this.slices.anew(() => this.parts());
  }

  *parts() {
    this.table.setAttribute("aria-busy", "true");
    const rows = this.shown();
    this.heads.forEach((head, index) => {
      const { id, down } = this.sort;
      const own = COLUMNS[index].id === id;
      own ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort");
      head.querySelector(".arrow").textContent = own ? (down ? " ↓" : " ↑") : "";
    });
    this.count.replaceChildren(`${rows.length} of ${this.state.rows.size} profiles`);
    this.summary();
    const present = this.body.children;
    for (const [index, row] of rows.entries()) {
      const element = this.line(row);
      if (present[index] !== element) keepingFocus(() => this.body.insertBefore(element, present[index] ?? null));
      yield;
    }
    while (present.length > rows.length) present[rows.length].remove();
    this.table.removeAttribute("aria-busy");
  }

  summary() {
    const card = (title, query, value) => h("a", { class: "card", href: query ? `#/?q=${query}` : "#/" }, h("b", {}, num(value)), h("span", {}, title));
    const counts = this.state.summary;
    this.cards.replaceChildren(
      card("profiles", "", counts.profiles), card("below their knee", "belowtheknee", counts.below_their_knee),
      card("being measured", "measuring", counts.being_measured), card("need attention", "attention", counts.need_attention),
      card("above capacity", "over", counts.above_capacity));
  }

  changed(changes) {
    for (const gone of changes.gone) this.lines.delete(`${gone.namespace}/${gone.name}`);
    this.slices.do(() => this.parts());
  }
}
