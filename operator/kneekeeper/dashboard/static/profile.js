// One profile: where it stands, what to do next, its curves and replicas, the twin, the run as it happens, history.
import { actionBar } from "./actions.js";
import * as api from "./api.js";
import { axisOf, charts } from "./curves.js";
import { badge, fact, h, keepingFocus, limits, num, say, table, time } from "./dom.js";
import { buttons } from "./export.js";
import { headroom, slo, stateBadge } from "./fleet.js";
import { PARTS, production } from "./production.js";
import { Slices } from "./slices.js";
import { Strip } from "./strip.js";
import { WhatIf, heatMap } from "./twin.js";

export class Profile {
  constructor(root, route, state) {
    Object.assign(this, { root, route, state, by: route.query.get("by") ?? "concurrency", extras: {}, closed: false, slices: new Slices(), drawn: new Map() });
    root.replaceChildren(h("p", { class: "muted" }, "Loading…"));
    this.load();
  }

  close() {
    this.closed = true;
    this.slices.close();
    clearTimeout(this.timer);
  }

  moved(route) {
    const other = route.query.get("run") !== this.route.query.get("run");
    this.route = route;
    this.by = route.query.get("by") ?? "concurrency";
    if (other) {
      this.extras = {};
      this.load();
    }
    else this.render();
  }

  changed(changes) {
    const own = (each) => each.namespace === this.route.namespace && each.name === this.route.name;
    if (!changes.rows.some(own) && !changes.gone.some(own)) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 150);
  }

  async load() {
    const { namespace, name, query } = this.route;
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const late = () => this.closed || turn !== this.turn; // answers may come in another order than the questions
    try {
      const view = await api.profile(namespace, name, query.get("run"));
      if (late()) return;
      this.view = view;
    } catch (error) {
      if (late()) return;
      this.root.replaceChildren(h("h1", {}, `${namespace}/${name}`), h("p", { class: "error", role: "alert" }, error.message), h("p", {}, h("a", { href: "#/" }, "Back to the fleet")));
      this.sections = null;
      this.slices.close();
      return;
    }
    if (!this.sections) this.build();
    this.render();
    this.model();
  }

  // The curves of the model take the server a moment; they are asked for once for each state of the run's stages.
  async model() {
    const run = this.view.run;
    if (!run) return;
    const key = `${run.name}/${run.stages.length}/${run.choices.length}`;
    if (this.asked === key) return;
    this.asked = key;
    const still = () => !this.closed && this.view.run?.name === run.name;
    try {
      const band = await api.band(run);
      if (!still() || this.asked !== key) return;
      this.extras = { ...this.extras, band };
      this.render();
    } catch (error) {
      say(error.message);
    }
    // A stage more hardly moves the surface: it is asked for again when the run chooses or certifies.
    const asked = `${run.name}/${Boolean(run.fit)}/${run.choices.length}/${run.certifications.length}`;
    if (this.askedSurface === asked) return;
    this.askedSurface = asked;
    if (!run.fit) {
      this.sections.twin.replaceChildren(h("p", { class: "muted" }, "The twin speaks once the ramp is fitted."));
      return;
    }
    this.sections.twin.replaceChildren(h("p", { class: "muted", role: "status" }, "The twin runs every pair of limits; this takes a few seconds…"));
    try {
      const surface = await api.surface(run);
      if (!still()) return;
      this.extras = { ...this.extras, surface };
      const whatIf = new WhatIf(run, surface);
      this.sections.twin.replaceChildren(heatMap(run, surface, (cell) => whatIf.pick(cell)), whatIf.element);
      this.render();
    } catch (error) {
      if (still()) this.sections.twin.replaceChildren(h("p", { class: "muted" }, error.message));
    }
  }

  build() {
    const section = (id, title, ...more) => {
      const body = h("div", { class: `body ${id}` });
      this.sections[id] = body;
      return h("section", { class: "panel", "aria-labelledby": `h-${id}` }, h("h2", { id: `h-${id}` }, title, ...more), body);
    };
    this.sections = {};
    this.drawn.clear();
    this.asked = this.askedSurface = null;
    this.strip = new Strip(this.route.name);
    const toggle = (by, text) => h("button", { type: "button", class: "quiet small", "data-by": by, onclick: () => this.show(by) }, text);
    this.toggles = [toggle("concurrency", "by concurrency"), toggle("rate", "by rate")];
    this.head = h("div");
    this.actions = h("div"); // apart, so that a change of numbers takes no token away while it is typed
    this.root.replaceChildren(this.head, this.actions,
      section("next", "Findings and next steps"),
      section("curves", "Where it stands", h("span", { class: "grow" }), this.toggles),
      section("production", "What production tells"),
      section("compare", "Before and after"),
      section("twin", "The twin"),
      section("stages", "The run"),
      section("history", "History"),
      section("events", "Events"));
    const { bodies, elements } = production(this.route.name, () => this.view);
    this.bodies = bodies;
    this.sections.production.replaceChildren(...elements);
  }

  show(by) {
    const query = new URLSearchParams(this.route.query);
    by === "concurrency" ? query.delete("by") : query.set("by", by);
    location.hash = `#/p/${encodeURIComponent(this.route.namespace)}/${encodeURIComponent(this.route.name)}${query.size ? `?${query}` : ""}`;
  }

  render() {
    if (this.sections && this.view) this.slices.do(() => this.parts());
  }

  *parts() {
    for (const [name, shown, draw] of [
      ["head", (v) => [v.row, v.recommendation, v.certified_for], () => this.renderHead()],
      ["actions", (v) => [v.row.suspended, v.recommendation?.hash, v.recommendation?.confidence], () => this.actions.replaceChildren(this.state.actions ? actionBar(this.view.row, this.view.recommendation) : "")],
      ["next", (v) => [v.row.mode, v.conditions, v.findings, v.recommendation, v.run?.failures], () => this.renderNext()],
      ["curves", (v) => [v.run, v.recommendation, !v.replicas.length, this.by, this.by === "rate" ? this.extras.surface : this.extras.band, this.axis()], () => this.renderCharts()],
      ["strip", (v) => [v.replicas, this.axis()], () => this.strip.draw(this.view.replicas, this.axis())],
      ...Object.entries(PARTS).map(([name, draw]) => [name, (v) => [v[name], v.row.name], () => this.bodies[name].replaceChildren(...draw(this.view).filter(Boolean))]),
      ["compare", (v) => v.run, () => this.renderCompare()],
      ["stages", (v) => v.run, () => this.renderStages()],
      ["history", (v) => [v.history, v.changes, v.events, v.run?.name], () => this.renderHistory()],
    ]) {
      const key = JSON.stringify(shown(this.view));
      if (this.drawn.get(name) === key) continue;
      keepingFocus(draw);
      this.drawn.set(name, key);
      yield;
    }
  }

  axis() {
    return axisOf(this.view, this.by, this.extras);
  }

  renderHead() {
    const { row, recommendation } = this.view;
    this.head.replaceChildren(
      h("div", { class: "title" }, h("h1", {}, row.name), stateBadge(row), h("span", { class: "muted" }, `${row.namespace} · ${row.target} · ${row.model}${row.gpu_product ? ` · ${row.gpu_product}` : ""} · ${row.mode}`), h("span", { class: "grow" }), buttons(row.name, { value: () => this.view })),
      row.message ? h("p", { class: "lead" }, row.message) : "",
      h("div", { class: "facts" },
        fact("P99 TTFT target", num(row.slo.p99_ttft_ms, "ms")), fact("P99 TPOT target", num(row.slo.p99_tpot_ms, "ms")),
        row.slo.p99_e2e_ms !== null && fact("P99 E2E target", num(row.slo.p99_e2e_ms, "ms")),
        row.slo.availability_percent !== null && fact("Must not fail", num(row.slo.availability_percent, "%")),
        fact("Limits in force", limits(row.in_force)), this.view.certified_for && fact("Certified for earlier targets", slo(this.view.certified_for)), fact("Recommended", limits(row.recommended)),
        fact("Promised a replica", num(row.capacity_requests_per_second, "/s")), fact("Bound by", row.bound_by ?? "–"),
        recommendation?.promised_output_tokens_per_second != null && fact("Output tokens a replica", num(recommendation.promised_output_tokens_per_second, "/s")),
        fact("Knee", row.knee ? [num(row.knee.concurrency), h("span", { class: "sub inline" }, num(row.knee.lower), " to ", num(row.knee.upper))] : num(null)),
        fact("Replicas", num(row.replicas)), fact("Least headroom", headroom(row))));
  }

  renderNext() {
    const { conditions, findings: found, recommendation, run } = this.view;
    const findings = conditions.filter((condition) => condition.level !== "fine");
    const items = findings.map((c) => h("li", {}, badge(c.reason, c.level === "problem" ? "bad" : "warn"), h("span", { class: "muted" }, ` ${c.type} `), c.message));
    for (const finding of found) items.unshift(h("li", {}, badge(finding.reason, finding.phase === "Present" ? "bad" : "warn"), h("span", { class: "muted" }, ` ${finding.phase}, confidence ${finding.confidence} · ${finding.pod}`, finding.pods > 1 ? [" and others: ", num(finding.pods), " pods"] : "", " · since ", time(finding.since), " "), finding.message, " ", h("b", {}, finding.next_step), h("span", { class: "sub" }, finding.evidence.map((each) => [each.name, " ", num(each.value, each.unit), "  "]))));
    for (const failure of run?.failures ?? []) items.push(h("li", {}, badge(failure.kind, "warn"), " the engine did not start with ", limits(failure.limits), ": ", failure.message));
    const parts = [items.length ? h("ul", { class: "findings" }, items) : h("p", {}, "Nothing asks for attention.")];
    if (recommendation) {
      const code = h("code", {}, recommendation.patch);
      const copy = h("button", { type: "button", onclick: async () => {
        try {
          await navigator.clipboard.writeText(recommendation.patch);
          copy.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(code);
          copy.textContent = "Selected: press Ctrl+C";
        }
        say(copy.textContent);
      } }, "Copy the patch");
      parts.push(h("p", {}, h("b", {}, recommendation.confidence === "Certified" ? "Recommended: " : "Predicted, not proven: "), limits(recommendation.limits), " · ", recommendation.improvement), h("details", { open: this.view.row.mode !== "Apply" }, h("summary", {}, "The change as a command"), h("pre", { tabindex: "0" }, code), copy));
    }
    parts.push(h("details", {}, h("summary", {}, "All conditions"), table("Conditions", ["Condition", "Status", "Reason", "Message", "Since"], conditions.map((c) => h("tr", {}, h("th", { scope: "row" }, c.type), h("td", {}, badge(c.status, { fine: "plain", notice: "warn", problem: "bad" }[c.level])), h("td", {}, c.reason), h("td", { class: "text" }, c.message), h("td", {}, time(c.since)))))));
    this.keepOpen(this.sections.next, parts);
  }

  // An update does not close what the viewer opened.
  keepOpen(section, parts) {
    const open = [...section.querySelectorAll("details")].map((each) => each.open);
    section.replaceChildren(...parts);
    section.querySelectorAll("details").forEach((each, index) => {
      if (open[index] !== undefined) each.open = open[index];
    });
  }

  renderCharts() {
    for (const toggle of this.toggles) toggle.setAttribute("aria-pressed", String(toggle.dataset.by === this.by));
    const { view, by } = this;
    const below = by === "rate" ? null : view.replicas.length ? this.strip.element : h("p", { class: "muted note" }, "No replica was seen yet.");
    const found = charts(view, by, this.extras, this.axis(), below);
    this.sections.curves.replaceChildren(...found.filter(Boolean));
  }

  renderCompare() {
    const run = this.view.run;
    if (!run?.after) {
      this.sections.compare.replaceChildren(h("p", { class: "muted" }, "No setting was certified yet."));
      return;
    }
    const { before, after } = run;
    const line = (title, value, unit, target) => h("tr", {}, h("th", { scope: "row" }, title), [before, after].map((stage) => {
      const found = stage ? value(stage) : null;
      return h("td", { class: target && found !== null ? (found > target ? "over" : "under") : null }, num(found, unit));
    }), h("td", {}, target ? num(target, unit) : ""));
    this.sections.compare.replaceChildren(
      h("p", {}, run.message),
      table("Before and after", ["Under open-loop load", "Before", "After", "Target"], [
        h("tr", {}, h("th", { scope: "row" }, "max-num-seqs / max-num-batched-tokens"), [before, after].map((stage) => h("td", {}, limits(stage?.limits))), h("td")),
        line("Offered requests/s", (stage) => stage.offered_requests_per_second, ""),
        line("Answered requests/s", (stage) => stage.requests_per_second, ""),
        line("P99 time to first token", (stage) => stage.p99_ttft_ms, "ms", run.slo?.p99_ttft_ms),
        line("P99 time per output token", (stage) => stage.p99_tpot_ms, "ms", run.slo?.p99_tpot_ms),
        run.slo?.p99_e2e_ms && line("P99 time of a whole request", (stage) => stage.p99_e2e_ms, "ms", run.slo.p99_e2e_ms),
        line("Requests judged", (stage) => stage.requests, ""),
        line("Requests that missed", (stage) => stage.misses, ""),
        h("tr", {}, h("th", { scope: "row" }, "Verdict"), [before, after].map((stage) => h("td", {}, stage?.verdict ? badge(stage.verdict) : "–")), h("td")),
      ]));
  }

  renderStages() {
    const run = this.view.run;
    if (!run) {
      this.sections.stages.replaceChildren(h("p", { class: "muted" }, "No run yet."));
      return;
    }
    const steps = ["Preflight", "Ceiling", "Ramp", "Choose", "Certify", "Baseline", "CleanUp", "Done"];
    const at = steps.indexOf(run.step);
    const heads = ["Stage", "max-num-seqs / tokens", "Users", "Offered /s", "Requests", "Answered /s", "P50 TTFT", "P99 TTFT", "P50 TPOT", "P99 TPOT", "Verdict"];
    const cell = (value, unit) => h("td", { class: "right" }, num(value, unit));
    const rows = run.stages.map((stage) => h("tr", { title: stage.message || null }, h("th", { scope: "row" }, stage.name), h("td", {}, limits(stage.limits)), cell(stage.users), cell(stage.offered_requests_per_second), cell(stage.requests), cell(stage.requests_per_second), cell(stage.p50_ttft_ms, "ms"), cell(stage.p99_ttft_ms, "ms"), cell(stage.p50_tpot_ms, "ms"), cell(stage.p99_tpot_ms, "ms"), h("td", {}, stage.verdict ? badge(stage.verdict) : stage.saturated ? badge("Saturated", "warn") : "")));
    if (run.stage_in_flight) rows.push(h("tr", { class: "flying" }, h("th", { scope: "row" }, run.stage_in_flight.name), h("td", { colspan: heads.length - 1 }, badge("runs now", "busy"), " since ", time(run.stage_in_flight.started_at))));
    this.sections.stages.replaceChildren(
      h("div", { class: "bar" }, h("b", {}, run.name), badge(run.outcome ?? run.step, run.outcome ? undefined : "busy"), h("span", { class: "muted" }, "started by ", run.trigger, " at ", time(run.started_at), run.finished_at ? [", ended ", time(run.finished_at)] : "", " · engine starts ", num(run.engine_starts), " · under load ", num(run.measure_seconds, "s"), " · GPU ", num(run.gpu_seconds, "s")), h("span", { class: "grow" }), buttons(run.name, { rows: () => run.stages, value: () => run })),
      h("ol", { class: "steps", "aria-label": "Steps of the run" }, steps.map((step, index) => h("li", { class: index < at ? "past" : index === at ? "now" : "", "aria-current": index === at ? "step" : null }, step))),
      run.message ? h("p", {}, run.message) : "",
      table("Stages", heads, rows),
      run.choices.length ? h("ul", { class: "plainlist" }, run.choices.map((choice) => h("li", {}, h("b", {}, "Choice: "), choice.message, " Bound by ", choice.bound_by, ".")), run.certifications.map((each) => h("li", {}, badge(each.verdict), " ", each.message))) : "");
  }

  renderHistory() {
    const { history, changes, events, row } = this.view;
    const link = (entry) => (entry.kept ? h("a", { href: `#/p/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}?run=${encodeURIComponent(entry.name)}`, "aria-current": this.view.run?.name === entry.name ? "true" : null }, entry.name) : entry.name);
    const rows = [...history].reverse().map((entry) => h("tr", {}, h("th", { scope: "row" }, link(entry)), h("td", {}, entry.trigger), h("td", {}, entry.outcome ? badge(entry.outcome) : badge("runs", "busy")), h("td", {}, limits(entry.limits)), h("td", { class: "right" }, num(entry.promised_requests_per_second, "/s")), h("td", { class: "right" }, num(entry.knee_concurrency)), h("td", { class: "text" }, entry.image), h("td", {}, time(entry.started_at))));
    this.sections.history.replaceChildren(
      rows.length ? table("Runs", ["Run", "Started by", "Outcome", "Certified limits", "Promised", "Knee", "Image", "Started"], rows) : h("p", { class: "muted" }, "No run yet."),
      changes.length ? h("ul", { class: "plainlist" }, changes.map((change) => h("li", {}, time(change.at), " ", limits(change.limits), " ", change.what))) : "");
    this.sections.events.replaceChildren(events.length ? table("Events", ["At", "Reason", "About", "Note"], events.map((event) => h("tr", {}, h("td", {}, time(event.at)), h("td", {}, badge(event.reason, event.type === "Warning" ? "warn" : "plain")), h("td", {}, event.about), h("td", { class: "text" }, event.note)))) : h("p", { class: "muted" }, "No events are known (the cluster keeps them for an hour)."));
  }
}
