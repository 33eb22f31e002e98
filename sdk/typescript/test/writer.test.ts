import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Failure, Quipu } from "../src/index.js";
import { fails, Server } from "./kit.js";

const server = new Server();
let n = 0;
before(() => server.start());
after(() => server.stop());
const open = () => new Quipu({ url: server.url, namespace: `w${++n}` });

test("a writer combines what it is told, and flush makes it durable", async () => {
  const db = open();
  const w = db.writer({ every: 60_000 });
  for (let i = 0; i < 1000; i++) w.tryAdd(`k${i % 3}`, 2);
  assert.equal(w.stats.pending, 3);
  await w.flush();
  assert.deepEqual((await db.getMany(["k0", "k1", "k2"])).map((c) => c.value), [668n, 666n, 666n]);
  assert.deepEqual(w.stats, { pending: 0, onWay: 0, batches: 1, resent: 0, added: 3, refused: 0 });
  await w.add("k0");
  await w.close();
  assert.equal((await db.get("k0")).value, 669n);
  await fails(w.add("k0"), "closed");
  await w.close();
});

test("a writer ships by itself, after its time or when it has enough", async () => {
  const db = open();
  const w = db.writer({ every: 10, entries: 5 });
  await w.add("a");
  for await (const c of db.watch("a", { every: 5 })) if (c.value === 1n) break;
  const slow = db.writer({ every: 60_000, entries: 5 });
  for (let i = 0; i < 5; i++) await slow.add(`b${i}`);
  for await (const c of db.watch("b4", { every: 5 })) if (c.value === 1n) break;
  await Promise.all([w.close(), slow.close()]);
});

test("a full writer makes its callers wait", async () => {
  const db = open();
  const w = db.writer({ every: 60_000, entries: 10, entriesMax: 10 });
  let most = 0;
  await Promise.all(Array.from({ length: 200 }, async (_, i) => {
    await w.add(`k${i}`);
    most = Math.max(most, w.stats.pending);
  }));
  await w.close();
  assert.equal(most, 10);
  assert.equal((await db.sum("k")).sum, 200n);
});

test("adds of one second, who and place share an entry, and count there", async () => {
  const db = open();
  await db.define([{ pattern: "v*", windows: [{ every: "1m", keep: "1d" }], dimensions: ["os"], unique: "who" }], { ifMatch: "*" });
  const w = db.writer();
  const at = Math.floor(Date.now() / 60_000) * 60_000 - 120_000;
  for (let i = 0; i < 10; i++) await w.add("v", 1, { at: at + i, who: `u${i % 2}`, dims: { os: "linux" } });
  assert.equal(w.stats.pending, 2);
  await w.add("v", 5, { at: at + 60_000, dims: { os: "mac" } });
  await w.flush();
  assert.deepEqual((await db.by("v", "os")).values, [{ values: ["linux"], count: 10n }, { values: ["mac"], count: 5n }]);
  const series = await db.range("v", { from: new Date(at), to: new Date(at + 120_000), step: "1m" });
  assert.deepEqual(series.points.map((p) => p.value), [10n, 5n]);
  assert.equal((await db.uniques("v")).count, 2n);
  await w.close();
});

test("what is refused is told, and takes nothing else with it", async () => {
  const db = open();
  await db.set("full", 2n ** 63n - 1n);
  const failures: Failure[] = [];
  const w = db.writer({ onFailure: (f) => failures.push(f) });
  await w.add("a", 1);
  await w.add("full", 2);
  await w.add("b", 1, { dims: Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`d${i}`, "x"])) }); // refuses its whole request
  await w.add("c", 1);
  await assert.rejects(w.flush());
  assert.deepEqual(failures.map((f) => [f.key, f.delta, (f.error as { kind?: string }).kind]).sort(), [["b", 1n, "too_large"], ["full", 2n, "overflow"]]);
  assert.deepEqual((await db.getMany(["a", "c"])).map((c) => c.value), [1n, 1n]);
  await w.flush(); // tells of each failure once
  await fails(w.add("", 1), "invalid");
  await fails(w.add("a", 0.5), "invalid");
  await w.close();
});

test("a sum beyond 64 bits is two adds", async () => {
  const db = open();
  const w = db.writer();
  await w.add("a", -(2n ** 62n));
  await w.add("a", -(2n ** 62n));
  await w.add("a", -1);
  await w.add("a", 5);
  assert.equal(w.stats.pending, 2);
  await w.flush();
  assert.equal((await db.get("a")).value, -(2n ** 63n) + 4n);
  await w.close();
});

test("a writer that can't reach its server gives up when close has run out of time", async () => {
  const db = new Quipu({ url: "http://127.0.0.1:9", namespace: "none" });
  const failures: Failure[] = [];
  const w = db.writer({ onFailure: (f) => failures.push(f) });
  await w.add("a", 3);
  await fails(w.close({ timeout: 100 }), "unknown");
  assert.deepEqual(failures.map((f) => [f.key, f.delta]), [["a", 3n]]);
});
