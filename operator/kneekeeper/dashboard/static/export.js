// What is shown, as a file: CSV and JSON of the API's values, PNG of a chart as it looks.
import { h, say } from "./dom.js";

function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  say(`${name} saved`);
}

const flat = (value, prefix = "") =>
  Object.entries(value).flatMap(([key, each]) =>
    each !== null && typeof each === "object" && !Array.isArray(each) ? flat(each, `${prefix}${key}.`) : [[prefix + key, each]]);

// A cell that begins like a formula is not to be run by a spreadsheet.
function cell(value) {
  let text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv(name, rows) {
  const flats = rows.map((row) => Object.fromEntries(flat(row)));
  const columns = [...new Set(flats.flatMap((row) => Object.keys(row)))];
  const lines = [columns, ...flats.map((row) => columns.map((column) => row[column]))].map((line) => line.map(cell).join(","));
  save(`${name}.csv`, new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
}

export function json(name, value) {
  save(`${name}.json`, new Blob([JSON.stringify(value, null, 2) + "\n"], { type: "application/json" }));
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "font-weight", "opacity", "fill-opacity", "text-anchor", "paint-order"];

// The drawing carries its computed colours with it, since an image knows no style sheet.
export async function png(name, svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, index) => {
    const style = getComputedStyle(originals[index]);
    for (const property of STYLES) element.setAttribute(property, style.getPropertyValue(property));
    element.removeAttribute("style");
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = h("canvas", { width: 2 * width, height: 2 * height });
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  canvas.toBlob((blob) => save(`${name}.png`, blob), "image/png");
}

export function buttons(name, { rows, value, svg }) {
  const button = (text, run) => h("button", { type: "button", class: "quiet small", "aria-label": `${name} as ${text}`, onclick: run }, text);
  return h("span", { class: "exports" },
    svg && button("PNG", () => png(name, svg())),
    rows && button("CSV", () => csv(name, rows())),
    value && button("JSON", () => json(name, value())));
}
