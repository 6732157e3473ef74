// Elements without markup strings, so that nothing an object of the cluster says is ever read as HTML.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent;

// What takes the place of the element that has the keyboard's focus gets it.
export function keepingFocus(draw) {
  const held = document.activeElement;
  draw();
  if (document.activeElement === held) return;
  const name = nameOf(held);
  const heir = held.isConnected ? held : name && [...document.querySelectorAll(held.tagName)].find((each) => nameOf(each) === name);
  if (heir) heir.focus({ preventScroll: true });
}

export function say(text) {
  document.getElementById("said").textContent = text;
}

const format = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6 }); // one: making it is what is slow

// A number that the API gave. The attribute is what tests compare with the API's answers.
export function num(value, unit = "") {
  if (value === null || value === undefined) return h("span", { class: "muted" }, "–");
  return h("span", { class: "num", "data-value": value }, format.format(value), unit && h("span", { class: "unit" }, "\u202f" + unit));
}

export function limits(value) {
  if (!value) return h("span", { class: "muted" }, "–");
  const part = (v) => (v === null ? h("span", { class: "muted", title: "vLLM's default" }, "default") : h("span", { class: "num", "data-value": v }, String(v)));
  return h("span", { class: "limits", title: "max-num-seqs / max-num-batched-tokens" }, part(value.max_num_seqs), "\u202f/\u202f", part(value.max_num_batched_tokens));
}

export function time(text) {
  if (!text) return h("span", { class: "muted" }, "–");
  const at = new Date(text);
  return h("time", { datetime: text, title: text }, at.toISOString().slice(0, 16).replace("T", " "));
}

const TONES = {
  good: ["True", "Pass", "Certified", "BelowTheKnee"],
  bad: ["Fail", "Failed", "ImpossibleSLO", "Invalid"],
  warn: ["Inconclusive", "NoImprovement", "Predicted", "Void", "Cancelled", "Unknown"],
};

export function badge(text, tone) {
  const found = tone ?? Object.keys(TONES).find((each) => TONES[each].includes(text)) ?? "plain";
  const mark = { good: "✓ ", bad: "✕ ", warn: "! ", busy: "● ", plain: "" }[found];
  return h("span", { class: `badge ${found}` }, h("span", { "aria-hidden": "true" }, mark), text);
}

export const fact = (title, ...content) => h("div", { class: "fact" }, h("span", {}, title), h("b", {}, content));

export const table = (caption, heads, rows) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)));
