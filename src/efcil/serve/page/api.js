// Every call to the server. Addresses are relative, so that the page works behind a prefix too.

import { askForToken, token } from "./token.js";

/** What the server refused, as one sentence. */
export class Refusal extends Error {
  constructor(sentence, status = 0, takesBack = null) {
    super(sentence);
    this.status = status;
    this.takesBack = takesBack; // after a class was deleted: what going further back would take away
  }
}

async function call(method, path, { body, headers = {} } = {}) {
  for (;;) {
    const used = token();
    const all = used ? { ...headers, Authorization: `Bearer ${used}` } : headers;
    let response;
    try {
      response = await fetch(path, { method, body, headers: all, cache: "no-store" });
    } catch {
      throw new Refusal("The server does not answer. Is it still running, and this device still connected to it?");
    }
    if (response.ok) return response;
    if (response.status === 401 && await askForToken(used)) continue;
    throw await refusal(response);
  }
}

async function refusal(response) {
  if (response.status === 401) return new Refusal("Without its token this server does not answer; reload the page to type it.", 401);
  let sentence = `The server cannot do this (${response.status} ${response.statusText}).`, takesBack;
  try {
    const { detail, takes_back } = await response.json();
    if (typeof detail === "string" && detail) sentence = detail;
    takesBack = takes_back;
  } catch { /* not from this server but from something in between: the number is all there is to say */ }
  return new Refusal(sentence, response.status, takesBack);
}

const json = async (method, path, options) => (await call(method, path, options)).json();
const place = (name) => `classes/${encodeURIComponent(name)}`;

export async function predict(photo) {
  const body = new FormData();
  body.append("images", photo.upload, photo.name);
  return (await json("POST", "predict", { body })).answers[0];
}

export function teach(name, photos) {
  const body = new FormData();
  body.append("name", name);
  for (const photo of photos) body.append("images", photo.upload, photo.name);
  return json("POST", "lessons", { body });
}

export const health = () => json("GET", "healthz");
export const lessons = async () => (await json("GET", "lessons")).lessons;
export const classes = async () => (await json("GET", "classes")).classes;
export const remove = async (name) => (await json("DELETE", place(name))).classes;
export const undo = (further) => json("POST", further ? "undo?further=true" : "undo");
export const modelFile = async () => (await call("GET", "model")).blob();

export async function rename(name, to) {
  const body = JSON.stringify({ name: to });
  return (await json("PATCH", place(name), { body, headers: { "Content-Type": "application/json" } })).classes;
}

/** A lesson as it goes on. Read with fetch, because an EventSource cannot carry the token. */
export async function* follow(id) {
  const response = await call("GET", `lessons/${encodeURIComponent(id)}`, { headers: { Accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const lines = event.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length) yield JSON.parse(lines.map((line) => line.slice(5)).join("\n"));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
