// Watching counters by the server's streams, and where there are none.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Count, Quipu, QuipuError } from "../src/index.js";
import { pieces } from "../src/sse.js";
import { Server } from "./kit.js";

const server = new Server("--api-key", "root");
let n = 0;
before(async () => {
  await server.start();
});
after(() => server.stop());

// open returns a client, and the paths that it has asked for.
function open(answer?: (path: string) => Response | undefined) {
  const asked: string[] = [];
  const counting: typeof fetch = (url, init) => {
    const path = new URL(String(url)).pathname;
    asked.push(path);
    const own = answer?.(path);
    return own === undefined ? fetch(url, init) : Promise.resolve(own);
  };
  return { db: new Quipu({ url: server.url, apiKey: "root", namespace: `w${++n}`, fetch: counting }), asked };
}

const streams = (asked: string[]) => asked.filter((p) => p.endsWith("/live")).length;
const looks = (asked: string[]) => asked.filter((p) => p.endsWith("/counters/a")).length;

async function next(watching: AsyncGenerator<Count>): Promise<bigint> {
  const r = await watching.next();
  assert.ok(!r.done, "it has ended");
  return r.value.value;
}

// metric returns a metric of the server.
async function metric(name: string): Promise<number> {
  const text = await (await fetch(`${server.url}/metrics`, { headers: { authorization: "Bearer root" } })).text();
  return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
}

test("one stream tells each change, with large numbers as they are", async () => {
  const { db, asked } = open();
  await db.set("a", 9223372036854775804n);
  const before = asked.length;
  const watching = db.watch("a");
  assert.equal(await next(watching), 9223372036854775804n);
  for (const want of [9223372036854775805n, 9223372036854775806n]) {
    await db.add("a", 1, { value: false });
    assert.equal(await next(watching), want);
  }
  assert.deepEqual([streams(asked), looks(asked.slice(before))], [1, 0]);
  await watching.return();
  while ((await metric("quipu_live_streams")) !== 0) await new Promise((r) => setTimeout(r, 20));
});

test("a signal ends it, while nothing changes", async () => {
  const { db } = open();
  const stop = new AbortController();
  const watching = db.watch("a", { signal: stop.signal });
  assert.equal(await next(watching), 0n);
  const waiting = watching.next();
  stop.abort();
  assert.equal((await waiting).done, true);
});

test("it goes on when the server was gone for a while, and says nothing twice", async () => {
  const own = await new Server().start();
  try {
    const db = new Quipu({ url: own.url });
    await db.add("a");
    const watching = db.watch("a");
    assert.equal(await next(watching), 1n);
    const waiting = watching.next();
    const port = own.port;
    await own.kill();
    await own.start(port);
    await db.add("a");
    const r = await waiting;
    assert.ok(!r.done && r.value.value === 2n, `got ${r.value?.value}`);
    await watching.return();
  } finally {
    await own.stop();
  }
});

test("where there are no streams it looks", async () => {
  for (const [status, body] of [
    [404, '{"kind":"not_found","detail":"nothing is served at this path"}'],
    [403, "a proxy says no"],
    [200, "{}"],
    [503, '{"kind":"unavailable","detail":"there are 256 live streams already"}'],
  ] as const) {
    const { db, asked } = open((path) => (path.endsWith("/live") ? new Response(body, { status }) : undefined));
    const watching = db.watch("a");
    assert.equal(await next(watching), 0n);
    await db.add("a");
    assert.equal(await next(watching), 1n);
    assert.equal(streams(asked), 1, `${status}`);
    assert.ok(looks(asked) >= 2);
    await watching.return();
  }
});

test("with a pause of its own it looks", async () => {
  const { db, asked } = open();
  const watching = db.watch("a", { every: 5 });
  assert.equal(await next(watching), 0n);
  await db.add("a");
  assert.equal(await next(watching), 1n);
  assert.equal(streams(asked), 0);
  await watching.return();
});

test("what can't be read is an error", async () => {
  const { db } = open();
  await assert.rejects(next(db.watch("")), QuipuError);
  const denied = new Quipu({ url: server.url, apiKey: "wrong" });
  await assert.rejects(next(denied.watch("a")), (e) => e instanceof QuipuError && e.status === 401);
});

test("a stream that is cut off is opened again", async () => {
  let cut = 0;
  const { db, asked } = open((path) => {
    if (!path.endsWith("/live") || cut++ > 1) return undefined;
    return new Response('event: overview\ndata: {}\n\nevent: counter\ndata: {"key":"a","val', { headers: { "content-type": "text/event-stream" } });
  });
  const watching = db.watch("a");
  assert.equal(await next(watching), 0n);
  assert.equal(streams(asked), 3);
  await watching.return();
});

test("events are read however they come", async () => {
  const f = async (want: [string, string][], ...chunks: string[]) => {
    const bytes = chunks.map((c) => new TextEncoder().encode(c));
    const body = new ReadableStream<Uint8Array>({ pull: (c) => (bytes.length > 0 ? c.enqueue(bytes.shift()!) : c.close()) });
    const got: [string, string][] = [];
    for await (const p of pieces(body, () => undefined)) got.push([p.event, p.data]);
    assert.deepEqual(got, want, JSON.stringify(chunks));
  };
  await f([["a", "1"]], "event: a\ndata: 1\n\n");
  await f([["a", "1"], ["message", "2"]], "event: a\r\ndata: 1\r", "\n\r\n:comment\n\nda", "ta:2\n\n");
  await f([["message", "1\n2"]], "data: 1\ndata: 2\nid: 7\nretry: 1\n\n");
  await f([], "event: a\ndata: 1\n");
  await f([], "event: a\n\n");
  const text = "event: ä\ndata: ☃\n\n";
  const raw = new TextEncoder().encode(text);
  const body = new ReadableStream<Uint8Array>({
    start(c) {
      for (const b of raw) c.enqueue(Uint8Array.of(b));
      c.close();
    },
  });
  for await (const p of pieces(body, () => undefined)) assert.deepEqual(p, { event: "ä", data: "☃" });
  const endless = new ReadableStream<Uint8Array>({ pull: (c) => c.enqueue(new Uint8Array(1 << 18).fill(97)) });
  await assert.rejects(pieces(endless, () => undefined).next(), /too long/);
});
