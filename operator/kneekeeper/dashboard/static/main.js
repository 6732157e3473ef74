// The address decides what is shown: #/ is the fleet, #/p/NAMESPACE/NAME a profile, with ?run=NAME one run of it.
import * as api from "./api.js";
import { h, say } from "./dom.js";
import { Fleet } from "./fleet.js";
import { Profile } from "./profile.js";

const main = document.getElementById("main");
const state = { version: "", source: "", actions: false, rows: new Map() };
let view = null;

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const [, kind, namespace, name] = path.split("/").map(decodeURIComponent);
  return { kind: kind === "p" && name ? "profile" : "fleet", namespace, name, query: new URLSearchParams(query) };
}

function crumbs(route) {
  const list = document.getElementById("crumbs");
  list.replaceChildren(h("a", { href: "#/", "aria-current": route.kind === "fleet" ? "page" : null }, "Fleet"));
  if (route.kind === "profile") list.append(h("span", { "aria-hidden": "true" }, " / "), h("span", { "aria-current": "page" }, `${route.namespace}/${route.name}`));
}

function show() {
  if (location.hash === "#main") return;
  const route = parse(location.hash || "#/");
  if (view?.route.kind === route.kind && view.route.namespace === route.namespace && view.route.name === route.name) {
    view.moved(route);
    return;
  }
  view?.close();
  crumbs(route);
  document.title = route.kind === "fleet" ? "Fleet · kneekeeper" : `${route.namespace}/${route.name} · kneekeeper`;
  view = route.kind === "fleet" ? new Fleet(main, route, state) : new Profile(main, route, state);
  scrollTo(0, 0);
  say(document.title);
}

const id = (row) => `${row.namespace}/${row.name}`;

async function load() {
  const answer = await api.fleet();
  Object.assign(state, answer, { rows: new Map(answer.rows.map((row) => [id(row), row])) });
}

function refuse(why) {
  main.replaceChildren(h("p", { class: "error", role: "alert" }, `The dashboard's server does not answer: ${why}`));
}

function themes() {
  const button = document.getElementById("theme");
  const order = ["auto", "light", "dark"];
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    localStorage.setItem("theme", theme);
  };
  set(order.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");
  button.addEventListener("click", () => set(order[(order.indexOf(document.documentElement.dataset.theme) + 1) % order.length]));
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "g") location.hash = "#/";
  if (event.key === "/") {
    document.getElementById("filter")?.focus();
    event.preventDefault();
  }
}

const live = document.getElementById("live");
const setLive = (text) => {
  live.textContent = text;
  live.dataset.state = text;
};

themes();
addEventListener("keydown", keys);
addEventListener("hashchange", () => view && show());
// Every opening of the stream loads the fleet anew; what the stream tells meanwhile is applied after it, so nothing is lost between.
let loaded = Promise.resolve();
api.follow(
  (changes) => loaded.then(() => {
    for (const row of changes.rows) state.rows.set(id(row), row);
    for (const gone of changes.gone) state.rows.delete(id(gone));
    state.summary = changes.summary;
    view?.changed(changes);
  }),
  (text) => {
    setLive(text);
    if (text !== "live") {
      if (!view) refuse("the connection is refused; it is tried again");
      return;
    }
    loaded = load().then(
      () => (view ? view.changed({ rows: [...state.rows.values()], gone: [] }) : show()),
      (error) => view || refuse(error.message),
    );
  },
);
