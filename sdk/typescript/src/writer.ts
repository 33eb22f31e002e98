import type { Quipu } from "./client.js";
import { invalid, QuipuError, UnavailableError, UnknownError } from "./errors.js";
import { newToken } from "./token.js";
import { pauseOf, sleep } from "./transport.js";
import type { Amount, BatchOp, BatchResult, Moment } from "./types.js";

/** WriterOptions say when a Writer ships what was added. */
export interface WriterOptions {
  /** Ship every so many milliseconds; 1,000 if it is not given. */
  every?: number;
  /** Ship when so many entries wait; 2,000 if it is not given. */
  entries?: number;
  /** How many entries may wait, and as many may be on their way; 100,000 if it is not given. */
  entriesMax?: number;
  /** Told of each add that was refused. */
  onFailure?: (f: Failure) => void;
}

/** A Failure is what a Writer could not add. */
export interface Failure {
  key: string;
  delta: bigint;
  error: Error;
}

/** WriterStats are what a Writer has done. */
export interface WriterStats {
  pending: number;
  onWay: number;
  batches: number;
  resent: number;
  added: number;
  refused: number;
}

/** AddedOptions say more of what is counted. */
export interface AddedOptions {
  at?: Moment;
  who?: string;
  dims?: Record<string, string>;
}

interface Entry {
  key: string;
  delta: bigint;
  at: number | undefined; // in seconds
  who: string | undefined;
  dims: Record<string, string> | undefined;
}

// A frame is what is sent together. Nothing in it changes once it has a token.
interface Frame {
  token: string;
  entries: Entry[];
  ops: BatchOp[];
}

const frameEntries = 2_000;
const frameBytes = 1 << 20;
const least = -(2n ** 63n);
const most = 2n ** 63n - 1n;

/**
 * A Writer sums adds in this process, key by key, and ships the sums. A batch is frozen
 * under a token of its own before it is sent, and is sent again, unchanged, until there
 * is a definite answer: whatever happens to the connection or the server, it counts once.
 * What was added and not flushed is lost if the process dies.
 */
export class Writer {
  readonly #db: Quipu;
  readonly #o: Required<Omit<WriterOptions, "onFailure">> & Pick<WriterOptions, "onFailure">;
  readonly #stats = { batches: 0, resent: 0, added: 0, refused: 0 };
  readonly #gone = new AbortController();
  #open = new Map<string, Entry>();
  #full: Entry[] = []; // entries whose sum has reached 64 bits
  #onWay = 0;
  #failure: Error | undefined;
  #closed = false;
  #shipping: Promise<void> = Promise.resolve();
  #queued: Promise<void> | undefined; // a shipping that has not begun
  #room: { promise: Promise<void>; free: () => void } | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(db: Quipu, o: WriterOptions) {
    this.#db = db;
    this.#o = { every: 1000, entries: 2000, entriesMax: 100_000, ...o };
    for (const name of ["every", "entries", "entriesMax"] as const) {
      if (!(this.#o[name] >= 1)) throw invalid(name, "want 1 or more");
    }
  }

  /** stats returns what the Writer has done so far. */
  get stats(): WriterStats {
    return { pending: this.#open.size + this.#full.length, onWay: this.#onWay, ...this.#stats };
  }

  /** add adds to a counter, and returns when there is room for it. */
  async add(key: string, delta: Amount = 1n, o: AddedOptions = {}): Promise<void> {
    while (!this.tryAdd(key, delta, o)) {
      void this.#ship();
      this.#room ??= room();
      await this.#room.promise;
    }
  }

  /** tryAdd adds to a counter, or returns false if there is no room. */
  tryAdd(key: string, delta: Amount = 1n, o: AddedOptions = {}): boolean {
    if (this.#closed) throw new QuipuError({ kind: "closed", status: 0, detail: "the writer is closed" });
    const bytes = key.length === 0 ? 0 : utf8.encode(key).length;
    if (bytes === 0 || bytes > 512) throw invalid("key", "want 1 to 512 bytes");
    if (typeof delta === "number" && !Number.isSafeInteger(delta)) throw invalid("delta", `${delta} is no integer that a number holds exactly: use a bigint`);
    const n = BigInt(delta);
    if (n < least || n > most) throw invalid("delta", `${n} is not an integer of 64 bits`);
    const fresh: Entry = { key, delta: n, at: undefined, who: o.who, dims: o.dims === undefined ? undefined : { ...o.dims } };
    let name = key;
    if (o.at !== undefined || o.who !== undefined || o.dims !== undefined) {
      const ms = new Date(o.at ?? Date.now()).getTime();
      if (Number.isNaN(ms)) throw invalid("at", "it is no time");
      fresh.at = Math.floor(ms / 1000);
      const dims = Object.entries(o.dims ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
      name = `\0${JSON.stringify([key, fresh.at, o.who ?? "", dims])}`;
    }
    const entry = this.#open.get(name);
    if (entry === undefined) {
      if (this.#open.size + this.#full.length >= this.#o.entriesMax) return false;
      this.#open.set(name, fresh);
    } else if (entry.delta + n >= least && entry.delta + n <= most) {
      entry.delta += n;
    } else {
      if (this.#open.size + this.#full.length >= this.#o.entriesMax) return false;
      this.#full.push(entry);
      this.#open.set(name, fresh);
    }
    if (this.#open.size >= this.#o.entries) void this.#ship();
    else this.#timer ??= setTimeout(() => void this.#ship(), this.#o.every);
    return true;
  }

  /** flush returns when all that was added before is durable or refused. It throws the first failure since the last flush. */
  async flush(): Promise<void> {
    if (this.#closed) throw new QuipuError({ kind: "closed", status: 0, detail: "the writer is closed" });
    await this.#ship();
    this.#fail();
  }

  /**
   * close ships what was added and ends the Writer. If that takes longer than `timeout`
   * milliseconds, 30,000 if it is not given, it gives up and throws an UnknownError: what
   * was sent may have counted, the rest has not.
   */
  async close(o: { timeout?: number } = {}): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const timer = setTimeout(() => this.#gone.abort(), o.timeout ?? 30_000);
    try {
      await this.#ship();
    } finally {
      clearTimeout(timer);
      clearTimeout(this.#timer);
    }
    this.#fail();
  }

  #fail(): void {
    const err = this.#failure;
    this.#failure = undefined;
    if (err !== undefined) throw err;
  }

  // ship sends what waits, after what is on its way. Callers that ask while one is
  // queued share it.
  #ship(): Promise<void> {
    return (this.#queued ??= this.#shipping = this.#shipping.then(async () => {
      this.#queued = undefined;
      clearTimeout(this.#timer);
      this.#timer = undefined;
      const entries = [...this.#full, ...this.#open.values()];
      this.#open = new Map();
      this.#full = [];
      this.#room?.free();
      this.#room = undefined;
      this.#onWay = entries.length;
      for (const frame of freeze(entries)) {
        await this.#send(frame);
        this.#onWay -= frame.entries.length;
      }
    }));
  }

  // send sends a frame until each of its entries has a definite answer.
  async #send(frame: Frame): Promise<void> {
    let error: Error | undefined; // why nothing is known of any entry
    for (let attempt = 0; ; attempt++) {
      if (this.#gone.signal.aborted) {
        error ??= new UnknownError({ kind: "unknown", status: 0, detail: "given up before it was durable" }, frame.token);
        break;
      }
      if (attempt > 0) this.#stats.resent++;
      try {
        const results = await this.#db.batch(frame.ops, { token: frame.token, value: false, signal: this.#gone.signal });
        if (!results.some((r) => r.error !== undefined && indefinite(r.error))) return this.#settle(frame, results);
      } catch (err) {
        if (err instanceof QuipuError && !indefinite(err)) {
          // The request itself was refused, as it is each time, because of one entry.
          if (frame.entries.length > 1 && (err.kind === "invalid" || err.kind === "too_large")) {
            for (const half of halves(frame)) await this.#send(half);
            return;
          }
          error = err;
          break;
        }
      }
      await sleep(pauseOf(attempt), this.#gone.signal);
    }
    this.#stats.refused += frame.entries.length;
    for (const e of frame.entries) this.#report(e, error);
  }

  #settle(frame: Frame, results: BatchResult[]): void {
    this.#stats.batches++;
    frame.entries.forEach((e, i) => {
      const err = results[i]?.error;
      if (err === undefined) this.#stats.added++;
      else {
        this.#stats.refused++;
        this.#report(e, err);
      }
    });
  }

  #report(e: Entry, error: Error): void {
    this.#failure ??= error;
    try {
      this.#o.onFailure?.({ key: e.key, delta: e.delta, error });
    } catch (err) {
      this.#failure = err as Error; // the caller's own, which must not stop the shipping
    }
  }
}

const utf8 = new TextEncoder();

// indefinite reports whether the same may be answered otherwise when it is sent again.
function indefinite(err: Error): boolean {
  return err instanceof UnavailableError || err instanceof UnknownError || (err instanceof QuipuError && (err.kind === "timeout" || err.kind === "lost"));
}

function room(): { promise: Promise<void>; free: () => void } {
  let free = () => {};
  const promise = new Promise<void>((resolve) => (free = resolve));
  return { promise, free };
}

// halves returns the entries of a frame in two new ones.
function halves(f: Frame): Frame[] {
  const middle = f.entries.length >> 1;
  return [
    { token: newToken(), entries: f.entries.slice(0, middle), ops: f.ops.slice(0, middle) },
    { token: newToken(), entries: f.entries.slice(middle), ops: f.ops.slice(middle) },
  ];
}

// freeze makes frames of entries. Those without a time happened now, whenever they arrive.
function* freeze(entries: Entry[]): Generator<Frame> {
  const now = Math.floor(Date.now() / 1000);
  let frame: Frame = { token: newToken(), entries: [], ops: [] };
  let bytes = 0;
  for (const e of entries) {
    const op: BatchOp = { key: e.key, delta: e.delta, at: (e.at ?? now) * 1000 };
    if (e.who !== undefined) op.who = e.who;
    if (e.dims !== undefined) op.dims = e.dims;
    const size = JSON.stringify([op.key, op.who, op.dims]).length * 3 + 100;
    if (frame.ops.length > 0 && (frame.ops.length >= frameEntries || bytes + size > frameBytes)) {
      yield frame;
      frame = { token: newToken(), entries: [], ops: [] };
      bytes = 0;
    }
    frame.entries.push(e);
    frame.ops.push(op);
    bytes += size;
  }
  if (frame.ops.length > 0) yield frame;
}
