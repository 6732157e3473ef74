// Retune, suspend and approve: with the viewer's own token, which stays in this page's memory and nowhere else.
import * as api from "./api.js";
import { h, say } from "./dom.js";

let token = "";

export function actionBar(row, recommendation) {
  const told = h("span", { role: "status", class: "muted" });
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Bearer token of the cluster", placeholder: "bearer token", value: token, oninput: () => { token = input.value.trim(); } });
  const button = (text, body, question) => h("button", { type: "button", onclick: async () => {
    if (!token) {
      told.textContent = "Paste a token of the cluster first: kubectl create token NAME";
      input.focus();
      return;
    }
    if (!confirm(question)) return;
    try {
      const done = await api.act(row, token, body);
      told.textContent = `Done as ${done.user}.`;
    } catch (error) {
      told.textContent = error.message;
    }
    say(told.textContent);
  } }, text);
  return h("section", { class: "actions", "aria-label": "Actions" },
    button("Retune", { verb: "retune" }, `Start a new run for ${row.namespace}/${row.name}?`),
    button(row.suspended ? "Resume" : "Suspend", { verb: row.suspended ? "resume" : "suspend" }, `${row.suspended ? "Resume" : "Suspend"} ${row.namespace}/${row.name}?`),
    recommendation?.confidence === "Certified" && button("Approve", { verb: "approve", hash: recommendation.hash }, `Roll out the recommended setting on ${row.namespace}/${row.name}?`),
    input, told);
}
