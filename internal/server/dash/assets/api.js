// Calls of the REST API, and its live stream.

// The key of a login is kept for this tab only, and is sent in a header: a key in an
// address would end up in logs. All that knows of it is in these three functions.
const KEY = "quipu.key";
export const loggedIn = () => sessionStorage.getItem(KEY) !== null;
export const login = (key) => sessionStorage.setItem(KEY, key);
export const logout = () => sessionStorage.removeItem(KEY);

function credentials(headers) {
  const key = sessionStorage.getItem(KEY);
  if (key !== null) headers.set("Authorization", `Bearer ${key}`);
  return headers;
}

// A Problem is an error as the API tells it.
export class Problem extends Error {
  constructor(status, p) {
    super(p.detail ?? `the server replied ${status}`);
    Object.assign(this, { status, title: p.title, kind: p.kind, field: p.field, offset: p.offset, available: p.available });
  }
}

const unreachable = () => new Problem(0, { title: "The server can't be reached", detail: "it may be restarting, or the network is down", kind: "network" });

// read parses JSON. Integers that a number can't hold become a BigInt.
export function read(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g, (m) => (m[0] === '"' ? m : `"\\u0001int:${m}"`));
  return JSON.parse(marked, (_, v) => {
    if (typeof v !== "string" || !/^\u0001int:-?\d+$/.test(v)) return v;
    const n = BigInt(v.slice(5));
    return Number.isSafeInteger(Number(n)) ? Number(n) : n;
  });
}

async function request(method, path, { body, headers, signal } = {}) {
  const all = credentials(new Headers(headers));
  if (body !== undefined) all.set("Content-Type", "application/json");
  let res;
  try {
    res = await fetch(path, { method, headers: all, body, signal, credentials: "same-origin", cache: "no-store" });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw unreachable();
  }
  if (res.ok) return res;
  const text = await res.text();
  let p = {};
  try {
    p = read(text);
  } catch {
    p = { detail: `the server replied ${res.status}` };
  }
  if (res.status === 401) window.dispatchEvent(new CustomEvent("quipu-login", { detail: loggedIn() }));
  throw new Problem(res.status, p);
}

// call makes a call, and returns what it replied. The ETag is in its property etag.
export async function call(method, path, options = {}) {
  const body = options.json === undefined ? options.body : JSON.stringify(options.json);
  const res = await request(method, path, { ...options, body });
  const value = read(await res.text());
  Object.defineProperty(value, "etag", { value: res.headers.get("ETag") });
  return value;
}

export const get = (path, options) => call("GET", path, options);

export async function download(path, name) {
  const res = await request("GET", path);
  const url = URL.createObjectURL(await res.blob());
  const a = Object.assign(document.createElement("a"), { href: url, download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60e3);
}

// api returns the path of a call in a namespace.
export function api(ns, path) {
  return ns === "default" ? `api/v1/${path}` : `api/v1/namespaces/${encodeURIComponent(ns)}/${path}`;
}

export const encode = encodeURIComponent;

export function query(params) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== null && value !== "") q.set(name, value);
  const text = q.toString();
  return text && `?${text}`;
}

// events calls f(name, data) for each server-sent event of a text that comes in pieces.
export function events(f) {
  let rest = "";
  return (piece) => {
    const all = (rest + piece).split("\n\n");
    rest = all.pop();
    for (const block of all) {
      let name = "message";
      const data = [];
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      if (data.length) f(name, data.join("\n"));
    }
  };
}

// live keeps one stream open until its signal ends it, and opens it again when it
// breaks. A page that is hidden has none. It takes {event: function}, and state(text)
// for what becomes of the stream.
export async function live(path, handlers, state, signal) {
  let wait = 500;
  while (!signal.aborted) {
    if (document.hidden) {
      state("paused");
      await once(document, "visibilitychange", signal);
      continue;
    }
    const stop = new AbortController();
    const hidden = () => document.hidden && stop.abort();
    const end = () => stop.abort();
    document.addEventListener("visibilitychange", hidden);
    signal.addEventListener("abort", end);
    try {
      const res = await request("GET", path, { signal: stop.signal });
      const feed = events((name, data) => handlers[name]?.(read(data)));
      const decoder = new TextDecoder();
      state("live");
      wait = 500;
      for (const reader = res.body.getReader(); ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        feed(decoder.decode(value, { stream: true }));
      }
    } catch (err) {
      if (signal.aborted) return;
      if (err.status === 401) state("denied");
    } finally {
      document.removeEventListener("visibilitychange", hidden);
      signal.removeEventListener("abort", end);
    }
    if (signal.aborted || stop.signal.aborted) continue;
    state("lost");
    await pause(wait, signal);
    wait = Math.min(wait * 2, 8000);
  }
}

const once = (target, event, signal) => new Promise((done) => {
  target.addEventListener(event, done, { once: true, signal });
  signal.addEventListener("abort", done, { once: true });
});

export const pause = (wait, signal) => new Promise((done) => {
  const timer = setTimeout(done, wait);
  signal?.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});
