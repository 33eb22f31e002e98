// Calls of the REST API, and its live stream.

import { csrf, needed, renew } from "./session.js";

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

// write writes JSON. A BigInt becomes the integer that it is.
const write = (v) => JSON.stringify(v, (_, x) => (typeof x === "bigint" ? `\u0001int:${x}` : x)).replace(/"\\u0001int:(-?\d+)"/g, "$1");

// request makes a call. If it is refused for want of a login, it waits for one and is made
// again: it was refused before it did anything.
async function request(method, path, { body, headers, signal } = {}) {
  for (let again = false; ; again = true) {
    const all = new Headers(headers);
    if (body !== undefined) all.set("Content-Type", "application/json");
    const token = csrf();
    if (token) all.set("X-Csrf-Token", token);
    let res;
    try {
      res = await fetch(path, { method, headers: all, body, signal, credentials: "same-origin", cache: "no-store" });
    } catch (err) {
      if (err.name === "AbortError") throw err;
      throw unreachable();
    }
    if (res.ok) return res;
    if (res.status === 401) {
      await needed(signal);
      continue;
    }
    const text = await res.text();
    if (res.status === 403 && method !== "GET" && !again) { // Another tab may have logged in.
      const known = await renew().catch(() => false);
      if (known && csrf() !== token) continue;
    }
    let p = {};
    try {
      p = read(text);
    } catch {
      p = { detail: `the server replied ${res.status}` };
    }
    throw new Problem(res.status, p);
  }
}

// call makes a call, and returns what it replied. The ETag is in its property etag.
export async function call(method, path, options = {}) {
  const body = options.json === undefined ? options.body : write(options.json);
  const res = await request(method, path, { ...options, body });
  const value = read(await res.text());
  Object.defineProperty(value, "etag", { value: res.headers.get("ETag") });
  return value;
}

export const get = (path, options) => call("GET", path, options);

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
// breaks. A page that is hidden has none. It takes {event: function}, where denied is for
// a user who may have no stream, and state(name) for what becomes of the stream.
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
      if (err.status === 403 || err.status === 401) { // Whoever has a prefix or a namespace alone has no stream.
        state("denied");
        handlers.denied?.();
        return;
      }
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
