// The JSON API, and the stream of changes. Addresses are relative, so that the page works behind any prefix.
const part = encodeURIComponent;

async function get(path, signal) {
  const response = await fetch(`api/${path}`, { signal, headers: { Accept: "application/json" } });
  const body = await response.json();
  if (!response.ok) throw Object.assign(new Error(body.error ?? response.statusText), { status: response.status });
  return body;
}

export const fleet = () => get("fleet");
export const profile = (namespace, name, run) => get(`profiles/${part(namespace)}/${part(name)}${run ? `?run=${part(run)}` : ""}`);
export const band = (run) => get(`runs/${part(run.namespace)}/${part(run.name)}/band`);
export const surface = (run) => get(`runs/${part(run.namespace)}/${part(run.name)}/surface`);
export const whatIf = (run, question, signal) => get(`runs/${part(run.namespace)}/${part(run.name)}/what-if?${new URLSearchParams(question)}`, signal);

export async function act(row, token, body) {
  const response = await fetch(`api/profiles/${part(row.namespace)}/${part(row.name)}/actions`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

export function follow(onChanges, onState) {
  const source = new EventSource("api/changes");
  source.addEventListener("open", () => onState("live"));
  source.addEventListener("error", () => onState("reconnecting"));
  source.addEventListener("changes", (event) => onChanges(JSON.parse(event.data)));
}
