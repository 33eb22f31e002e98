import type { Quipu } from "./client.js";
import { UnavailableError } from "./errors.js";
import { pauseOf, sleep } from "./transport.js";
import type { Count, ReadOptions } from "./types.js";

/** WatchOptions say how to watch a counter. */
export interface WatchOptions extends ReadOptions {
  /** How many milliseconds pass between two looks; 1,000 if it is not given. */
  every?: number;
}

/**
 * watch asks again and again with the ETag of the last answer, which costs little while
 * nothing changes. It waits while the server can't be reached.
 */
export async function* watch(db: Quipu, key: string, o: WatchOptions): AsyncGenerator<Count, void, undefined> {
  const every = o.every ?? 1000;
  let etag: string | undefined;
  for (let failed = 0; !o.signal?.aborted; ) {
    try {
      const changed = await db.getIfChanged(key, etag, o);
      failed = 0;
      if (changed !== undefined) {
        etag = changed.etag;
        yield changed.count;
      }
    } catch (err) {
      if (o.signal?.aborted) return;
      if (!(err instanceof UnavailableError)) throw err;
      failed++;
    }
    await sleep(failed === 0 ? every : Math.max(every, pauseOf(failed)), o.signal);
  }
}
