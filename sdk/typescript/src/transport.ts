// Sends requests, and sends them again where that is safe.
import { problemError, QuipuError, UnavailableError, UnknownError } from "./errors.js";

/** Options say where the server is and how to call it. */
export interface Options {
  /** The address of the REST API, such as http://127.0.0.1:8080. */
  url: string;
  /** The API key, if the server wants one. */
  apiKey?: string;
  /** The namespace; "default" if it is not given. */
  namespace?: string;
  /** How many milliseconds a call may take, with all its attempts; 15,000 if it is not given. */
  timeout?: number;
  /** How many milliseconds one attempt may take; 6,000 if it is not given. */
  attemptTimeout?: number;
  /** Whether each write gets a token, so that it can be sent again; true if it is not given. */
  tokens?: boolean;
  /** Called instead of the global fetch. */
  fetch?: typeof fetch;
}

/** CallOptions are what every call takes. */
export interface CallOptions {
  /** Ends the call. What was sent may have counted. */
  signal?: AbortSignal;
  /** How many milliseconds the call may take, with all its attempts. */
  timeout?: number;
}

/** A Request is one call, which may be sent several times. */
export interface Request {
  method: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  query?: Record<string, string | undefined>;
  headers?: Record<string, string>;
  body?: string;
  /** It may be sent again after it may have arrived. */
  repeatable: boolean;
  /** It changes nothing. */
  reads?: boolean;
  token?: string | undefined;
  options?: CallOptions | undefined;
}

/** A Reply is what came back. The body is that of a 200, and undefined for 304. */
export interface Reply {
  status: number;
  headers: Headers;
  body: unknown;
}

const pauseFirst = 25;
const pauseMax = 1000;

/** pause returns how long to wait before attempt n, in milliseconds: a random part of twice as long each time. */
export function pauseOf(attempt: number, random = Math.random()): number {
  return Math.min(pauseMax, pauseFirst * 2 ** attempt) * (0.5 + random / 2);
}

/** sleep waits, unless the signal ends it. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}

// The connection was never made: these say that nothing was sent.
const unsent = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

function wasUnsent(err: unknown): boolean {
  for (let e = err, depth = 0; e instanceof Error && depth < 5; e = e.cause, depth++) {
    if (unsent.has((e as { code?: string }).code ?? "")) return true;
    if (e instanceof AggregateError) return e.errors.length > 0 && e.errors.every(wasUnsent);
  }
  return false;
}

/** A Transport calls one server. */
export class Transport {
  readonly #base: string;
  readonly #o: Options;

  constructor(o: Options) {
    this.#o = o;
    this.#base = o.url.replace(/\/+$/, "");
  }

  /** do sends a request until there is a definite answer, or the time is over. */
  async do(r: Request): Promise<Reply> {
    const ends = Date.now() + (r.options?.timeout ?? this.#o.timeout ?? 15_000);
    const signal = r.options?.signal;
    signal?.throwIfAborted();
    let doubt: unknown; // why an attempt may have counted
    for (let attempt = 0; ; attempt++) {
      const left = ends - Date.now();
      let last: unknown;
      let wait = pauseOf(attempt);
      try {
        const reply = await this.#attempt(r, Math.max(1, Math.min(left, this.#o.attemptTimeout ?? 6_000)));
        if (!(reply instanceof QuipuError)) return reply;
        last = reply;
        if (reply instanceof UnknownError) doubt ??= reply;
        else if (!(reply instanceof UnavailableError) && reply.kind !== "timeout") throw reply;
      } catch (err) {
        if (err instanceof QuipuError) throw err;
        last = err;
        if (!wasUnsent(err)) doubt ??= err;
      }
      if (doubt !== undefined && !r.repeatable) throw this.#ended(r, last, doubt);
      if (last instanceof UnavailableError) wait = Math.max(wait, 100);
      if (!signal?.aborted && Date.now() + wait < ends) await sleep(wait, signal);
      else if (!signal?.aborted) throw this.#ended(r, last, doubt);
      if (signal?.aborted) {
        if (doubt !== undefined && !r.reads) throw this.#ended(r, signal.reason, doubt);
        throw signal.reason;
      }
    }
  }

  /** open sends a GET once whose reply is a stream, and returns that, or the error that the server told. */
  async open(r: Pick<Request, "path" | "query">, signal: AbortSignal): Promise<Response | QuipuError> {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#o.apiKey !== undefined) headers.authorization = `Bearer ${this.#o.apiKey}`;
    const response = await (this.#o.fetch ?? fetch)(this.#url(r), { headers, signal });
    if (response.status === 200) return response;
    const text = await response.text();
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      body = undefined;
    }
    const why = { kind: "other" as const, status: response.status, detail: `status ${response.status} without an answer of Quipu's` };
    return problemError(response.status, body) ?? (response.status >= 500 ? new UnavailableError({ ...why, kind: "unavailable" }) : new QuipuError(why));
  }

  #url(r: Pick<Request, "path" | "query">): string {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(r.query ?? {})) if (value !== undefined) query.set(name, value);
    return this.#base + r.path + (query.size > 0 ? `?${query}` : "");
  }

  // ended returns the error of a call that nobody answered in time.
  #ended(r: Request, last: unknown, doubt: unknown): QuipuError {
    const why = last instanceof Error ? last.message : String(last);
    const cause = last instanceof Error && last.cause instanceof Error ? `${why}: ${last.cause.message}` : why;
    if (doubt === undefined || r.reads) {
      return new UnavailableError({ kind: "unavailable", status: 0, detail: `the server did not answer: ${cause}` }, last);
    }
    return new UnknownError({ kind: "unknown", status: 0, detail: `no answer came, and the write may have counted: ${cause}` }, r.token, last);
  }

  // attempt sends a request once. It returns the error that the server told, and
  // throws if there was no answer.
  async #attempt(r: Request, timeout: number): Promise<Reply | QuipuError> {
    const headers: Record<string, string> = { ...r.headers, accept: "application/json;int64=string" };
    if (this.#o.apiKey !== undefined) headers.authorization = `Bearer ${this.#o.apiKey}`;
    if (r.body !== undefined) headers["content-type"] = "application/json";
    const ends = AbortSignal.timeout(timeout);
    const signal = r.options?.signal ? AbortSignal.any([r.options.signal, ends]) : ends;
    const init: RequestInit = { method: r.method, headers, signal };
    if (r.body !== undefined) init.body = r.body;
    const response = await (this.#o.fetch ?? fetch)(this.#url(r), init);
    const text = await response.text();
    if (response.status === 304) return { status: 304, headers: response.headers, body: undefined };
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      body = undefined; // of a proxy, or cut off
    }
    if (response.status === 200 && body !== undefined) return { status: 200, headers: response.headers, body };
    const problem = problemError(response.status, body);
    if (problem !== undefined) return problem;
    if (response.status === 200 || response.status >= 500) throw new Error(`status ${response.status} without an answer of Quipu's`);
    return new QuipuError({ kind: "other", status: response.status, detail: `status ${response.status} without an answer of Quipu's` });
  }
}
