import { QuipuError, UnavailableError } from "./errors.js";
import { type Pieces, pieces } from "./sse.js";
import { pauseOf, sleep } from "./transport.js";
import type { Count, ReadOptions } from "./types.js";

/** WatchOptions say how to watch a counter. */
export interface WatchOptions extends ReadOptions {
  /**
   * How many milliseconds pass between two looks. If it is not given, the server tells of
   * changes by itself, up to four times a second; where it can't, there is a look each second.
   */
  every?: number;
}

/** How many milliseconds pass between two looks where a server has no streams. */
const lookEvery = 1000;

/** For how many milliseconds a server is asked again and again before its streams are tried again. */
const streamAgain = 30_000;

/** How many milliseconds a stream may be silent: the server says something every 15 s. */
const silentMax = 40_000;

/** A Source is what watch needs of a client, and the rest of the package does not show. */
export interface Source {
  /** look reads a counter, unless it still has an ETag. */
  look(etag: string | undefined): Promise<{ etag: string; count: Count } | undefined>;
  /** open opens a stream of the counter. */
  open(signal: AbortSignal): Promise<Response | QuipuError>;
  count(data: unknown): Count;
  problem(data: unknown): QuipuError | undefined;
}

/** watch yields a counter now, and then whenever it has changed. It waits while the server can't be reached. */
export async function* watch(source: Source, o: WatchOptions): AsyncGenerator<Count, void, undefined> {
  let streams = o.every === undefined;
  let streamsAt = 0; // from when on they may be tried
  let etag: string | undefined;
  let last: Count | undefined;
  for (let failed = 0; !o.signal?.aborted; ) {
    if (streams && Date.now() >= streamsAt) {
      try {
        for await (const count of follow(source, o.signal)) {
          failed = 0;
          if (last !== undefined && same(last, count)) continue; // of a stream that was opened again
          etag = undefined;
          last = count;
          yield count;
        }
        await sleep(pauseOf(failed++), o.signal); // it has ended, as each does after a while
        continue;
      } catch (err) {
        if (o.signal?.aborted) return;
        if (err instanceof NoStreams) streams = false;
        else if (err instanceof UnavailableError || (err instanceof QuipuError && err.status === 429)) streamsAt = Date.now() + streamAgain; // there are too many of them, or it can't be reached
        else if (err instanceof QuipuError) throw err;
        else if (failed++ > 0) streamsAt = Date.now() + streamAgain;
      }
    }
    try {
      const changed = await source.look(etag);
      failed = 0;
      if (changed !== undefined) {
        etag = changed.etag;
        if (last === undefined || !same(last, changed.count)) {
          last = changed.count;
          yield changed.count;
        }
      }
    } catch (err) {
      if (o.signal?.aborted) return;
      if (!(err instanceof UnavailableError)) throw err;
      failed++;
      streamsAt = 0; // if it comes back, it may have places
    }
    const every = o.every ?? lookEvery;
    await sleep(failed === 0 ? every : Math.max(o.every ?? 0, pauseOf(failed)), o.signal);
  }
}

// same reports whether two answers are of one state of the counter.
function same(a: Count, b: Count): boolean {
  return a.value === b.value && a.version === b.version && a.exists === b.exists;
}

/** A NoStreams says that the server, or something before it, has no streams of counters for this caller. */
class NoStreams extends Error {}

// follow yields what one stream says, until it ends.
async function* follow(source: Source, signal: AbortSignal | undefined): AsyncGenerator<Count, void, undefined> {
  const stop = new AbortController();
  const end = () => stop.abort(signal?.reason);
  signal?.addEventListener("abort", end);
  if (signal?.aborted) end();
  let silence: ReturnType<typeof setTimeout> | undefined;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => stop.abort(new Error("the stream is silent")), silentMax);
  };
  heard();
  try {
    const response = await source.open(stop.signal);
    if (response instanceof UnavailableError) throw response;
    if (response instanceof QuipuError) {
      // One that knows no such path, or does not let this caller have it, may still answer reads.
      if ([403, 404, 405].includes(response.status)) throw new NoStreams();
      throw response;
    }
    if (response.body === null || !(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) throw new NoStreams();
    for await (const piece of pieces(response.body, heard) as Pieces) {
      if (piece.event === "counter") yield source.count(JSON.parse(piece.data));
      if (piece.event !== "problem") continue;
      const problem = source.problem(JSON.parse(piece.data));
      if (problem !== undefined && !(problem instanceof UnavailableError)) throw problem;
    }
  } finally {
    clearTimeout(silence);
    signal?.removeEventListener("abort", end);
    stop.abort(); // whoever watches no more leaves its place to others
  }
}
