// What becomes of calls when connections and servers break.
import assert from "node:assert/strict";
import net from "node:net";
import { after, afterEach, before, test } from "node:test";
import { Quipu, UnavailableError, UnknownError, type Writer } from "../src/index.js";
import { fails, Server, Wire } from "./kit.js";

const server = new Server();
const wire = new Wire(server);
let n = 0;
before(async () => {
  await server.start();
  await wire.start();
});
afterEach(() => {
  wire.cuts = 0;
});
after(async () => {
  await wire.stop();
  await server.stop();
});

const open = (o = {}) => new Quipu({ url: wire.url, namespace: `f${++n}`, ...o });

test("a call whose reply was cut off is sent again, and counts once", async () => {
  const db = open();
  wire.cuts = 2;
  const r = await db.add("a", 5);
  assert.deepEqual([r.value, r.replayed, wire.cuts], [5n, true, 0]);
  wire.cuts = 1;
  assert.equal((await db.get("a")).value, 5n);
  wire.cuts = 1;
  await db.batch([{ key: "a" }, { key: "b" }]);
  wire.cuts = 1;
  const held = await db.reserve("a", 2, "1m");
  wire.cuts = 1;
  await db.commit(held.id);
  wire.cuts = 1;
  assert.equal((await db.settle("a", "none")).state, "settled");
  assert.deepEqual((await db.getMany(["a", "b"])).map((c) => c.value), [4n, 1n]);
});

test("many callers through a wire that is cut all the time count exactly", async () => {
  const db = open();
  const was = wire.cut;
  wire.every = 4;
  try {
    await Promise.all(Array.from({ length: 10 }, async () => {
      for (let i = 0; i < 10; i++) await db.add("a", 1, { timeout: 30_000, value: i % 2 === 0 });
    }));
  } finally {
    wire.every = 0;
  }
  assert.ok(wire.cut > was, "no connection was cut");
  assert.equal((await db.get("a")).value, 100n);
});

test("without a token nothing is sent twice that may have counted", async () => {
  const db = open({ tokens: false });
  await db.add("a");
  wire.cuts = 1;
  const e = await fails(db.add("a"), "unknown");
  assert.ok(e instanceof UnknownError && e.token === undefined);
  assert.equal((await db.get("a")).value, 2n);
});

test("an outcome that stays unknown says so, with the token that tells", async () => {
  const db = open({ timeout: 300 });
  wire.cuts = 1_000;
  const e = await fails(db.add("a"), "unknown");
  wire.cuts = 0;
  assert.ok(e instanceof UnknownError && e.token);
  assert.equal((await db.settle("a", e.token)).state, "applied");
  wire.cuts = 1_000;
  assert.ok((await fails(db.get("a", { timeout: 200 }), "unavailable")) instanceof UnavailableError);
});

test("a server that is not there is unavailable, and nothing has changed", async () => {
  const gone = net.createServer();
  await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
  const port = (gone.address() as net.AddressInfo).port;
  await new Promise<void>((resolve) => gone.close(() => resolve()));
  const db = new Quipu({ url: `http://127.0.0.1:${port}`, timeout: 200 });
  assert.match((await fails(db.add("a"), "unavailable")).message, /ECONNREFUSED/);
});

test("a server that says nothing does not hold a caller", async () => {
  const silent = net.createServer();
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const db = new Quipu({ url: `http://127.0.0.1:${(silent.address() as net.AddressInfo).port}`, timeout: 300, attemptTimeout: 100 });
  await fails(db.add("a"), "unknown");
  const stop = AbortSignal.timeout(50);
  await fails(db.add("a", 1, { signal: stop }), "unknown");
  await assert.rejects(db.get("a", { signal: AbortSignal.abort(new Error("no more")) }), /no more/);
  silent.close();
});

test("what is no server of Quipu's is told", async () => {
  const other = net.createServer((s) => s.once("data", () => s.end("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello")));
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const db = new Quipu({ url: `http://127.0.0.1:${(other.address() as net.AddressInfo).port}` });
  assert.match((await fails(db.get("a"), "other")).message, /status 404/);
  other.close();
  assert.throws(() => new Quipu({ url: "127.0.0.1:8080" }), /want http/);
});

test("an API key opens the door", async () => {
  const locked = await new Server("--api-key", "s3cret").start();
  try {
    const e = await fails(new Quipu({ url: locked.url, apiKey: "wrong" }).add("a"), "unauthorized");
    assert.equal(e.status, 401);
    assert.ok(e.requestId);
    assert.equal((await new Quipu({ url: locked.url, apiKey: "s3cret" }).add("a")).value, 1n);
  } finally {
    await locked.stop();
  }
});

/** counts adds up what a writer was told to add. */
async function load(w: Writer, adds: number, sums: Map<string, bigint>): Promise<void> {
  for (let i = 0; i < adds; i++) {
    const key = `k${i % 37}`;
    await w.add(key, i % 5);
    sums.set(key, (sums.get(key) ?? 0n) + BigInt(i % 5));
    if (i % 100 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

test("a writer loses and doubles nothing when connections are cut and the server is killed", async () => {
  const victim = await new Server().start();
  const between = await new Wire(victim).start();
  try {
    const db = new Quipu({ url: between.url, timeout: 100 }); // so that the writer has to send batches again itself
    const w = db.writer({ every: 5, entries: 20, entriesMax: 40, onFailure: (f) => assert.fail(`${f.key}: ${f.error}`) });
    const sums = new Map<string, bigint>();
    for (let round = 0; round < 3; round++) {
      between.cuts = 3;
      const loading = load(w, 3_000, sums);
      await new Promise((resolve) => setTimeout(resolve, 30));
      const port = victim.port;
      await victim.kill();
      await new Promise((resolve) => setTimeout(resolve, 20));
      await victim.start(port);
      await loading;
    }
    between.cuts = 0;
    await w.flush();
    assert.ok(w.stats.pending === 0 && w.stats.onWay === 0 && w.stats.refused === 0, JSON.stringify(w.stats));
    await w.close();
    const counts = await db.getMany([...sums.keys()], { exact: true, timeout: 5_000 });
    assert.deepEqual(new Map(counts.map((c) => [c.key, c.value])), sums);
  } finally {
    await between.stop();
    await victim.stop();
  }
});

test("a writer waits for a server that is away", async () => {
  const victim = await new Server().start();
  try {
    const port = victim.port;
    await victim.kill();
    const db = new Quipu({ url: victim.url, timeout: 20 });
    const w = db.writer({ every: 1 });
    await w.add("a", 3);
    while (w.stats.resent < 2) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(w.stats.onWay, 1);
    await victim.start(port);
    await w.close();
    assert.equal((await db.get("a", { timeout: 5_000 })).value, 3n);
  } finally {
    await victim.stop();
  }
});
