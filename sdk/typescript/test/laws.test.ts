// The laws of the product, as internal/dbtest has them, through this client.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { BoundError, newToken, Quipu } from "../src/index.js";
import { fails, Server } from "./kit.js";

const server = new Server();
let n = 0;
before(() => server.start());
after(() => server.stop());

/** open returns a client of a namespace that nobody has used. */
const open = () => new Quipu({ url: server.url, namespace: `n${++n}` });

const large = 2n ** 53n + 1n;

test("writes count, and receipts say what they did", async () => {
  const db = open();
  const first = await db.add("a");
  assert.deepEqual([first.key, first.applied, first.value, first.before, first.replayed, first.durability], ["a", 1n, 1n, 0n, false, "synced"]);
  assert.equal((await db.add("a", -5)).value, -4n);
  const blind = await db.add("a", 2n, { value: false });
  assert.deepEqual([blind.applied, blind.value, blind.before], [2n, undefined, undefined]);
  assert.deepEqual(((r) => [r.value, r.before])(await db.set("a", large)), [large, -2n]);
  assert.equal((await db.get("a")).value, large);
  assert.deepEqual(((r) => [r.value, r.before])(await db.reset("a", { reason: "test", actor: "me" })), [0n, large]);
  assert.equal((await db.delete("a", { reason: "test" })).before, 0n);
  const gone = await db.get("a");
  assert.deepEqual([gone.exists, gone.value, gone.version], [false, 0n, 0n]);
  await db.set("edge", 2n ** 63n - 1n);
  await fails(db.add("edge"), "overflow");
  assert.equal((await db.get("edge")).value, 2n ** 63n - 1n);
  assert.equal((await db.set("edge", -(2n ** 63n))).value, -(2n ** 63n));
});

test("keys are any text", async () => {
  const db = open();
  for (const key of ["a/b", "été 2026", "%2F", "?x=1#y", "a.b", "...", "read", "\"\\", "日本", "a+b", "é".repeat(256)]) {
    await db.add(key, 3);
    assert.equal((await db.get(key)).key, key);
    assert.equal((await db.get(key)).value, 3n, key);
  }
  await fails(db.add(""), "invalid");
  await fails(db.get("x".repeat(513)), "too_large");
  await fails(db.add(".."), "invalid");
  await fails(db.add("\ud800"), "invalid");
  await db.batch([{ key: ".", delta: 2 }]);
  assert.equal((await db.getMany(["."]))[0]!.value, 2n);
});

test("amounts that can't be sent are refused", async () => {
  const db = open();
  for (const bad of [0.5, 2 ** 53, Number.NaN, Infinity, 2n ** 63n]) await fails(db.add("a", bad), "invalid");
  assert.equal((await db.get("a")).exists, false);
});

test("a repeat counts once and returns the first result", async () => {
  const db = open();
  await db.add("a", 100);
  const writes = [
    (token: string) => db.add("a", 5, { token }),
    (token: string) => db.add("a", 5, { token, value: false }),
    (token: string) => db.add("a", 1, { token, who: "me", dims: {}, ttl: "1h", ceiling: 1000, floor: -5, at: 1767323045000 }),
    (token: string) => db.set("a", 9, { token }),
    (token: string) => db.reset("a", { token }),
    (token: string) => db.delete("a", { token }),
    (token: string) => db.add("a", 3, { token, ifVersion: 0 }),
  ];
  for (const write of writes) {
    const token = newToken();
    const first = await write(token);
    assert.equal(first.replayed, false);
    assert.deepEqual(await write(token), { ...first, replayed: true });
  }
  assert.equal((await db.get("a")).value, 3n);
});

test("the same token with another payload is refused", async () => {
  const db = open();
  await db.add("a", 5, { token: "t" });
  assert.equal((await fails(db.add("a", 6, { token: "t" }), "token")).field, "Idempotency-Key");
  await fails(db.set("a", 5, { token: "t" }), "token");
  assert.equal((await db.get("a")).value, 5n);
  assert.equal((await db.in("other").get("a")).exists, false);
});

test("lookup reports, and settle is final", async () => {
  const db = open();
  assert.equal((await db.lookup("a", "t")).state, "unknown");
  const first = await db.add("a", 4, { token: "t" });
  const fate = await db.lookup("a", "t");
  assert.deepEqual([fate.state, fate.receipt?.value, fate.receipt?.version], ["applied", 4n, first.version]);
  assert.ok(Math.abs(fate.at!.getTime() - Date.now()) < 60_000);
  assert.equal((await db.settle("a", "late")).state, "settled");
  await fails(db.add("a", 1, { token: "late" }), "settled");
  const old = newToken(Date.now() - 49 * 3600_000);
  await fails(db.add("a", 1, { token: old }), "expired");
  assert.equal((await db.settle("a", old)).state, "expired");
  assert.equal((await db.get("a")).value, 4n);
});

test("a write at a version applies only there", async () => {
  const db = open();
  const r = await db.set("a", 1, { ifVersion: 0n });
  await fails(db.set("a", 2, { ifVersion: 0 }), "changed");
  assert.equal((await db.get("a")).version, r.version);
  await db.set("a", 3, { ifVersion: r.version! });
  await fails(db.delete("a", { ifVersion: r.version! }), "changed");
  assert.equal((await db.get("a")).value, 3n);
});

test("reads say what they are", async () => {
  const db = open();
  const r = await db.add("a", 7);
  for (const o of [{}, { exact: true }, { session: r.session }, { maxStaleness: "5s" }, { maxStaleness: 5000, maxError: 10 }]) {
    const c = await db.get("a", o);
    assert.deepEqual([c.value, c.lower, c.upper, c.exact, c.complete, c.exists, c.source, c.shards], [7n, 7n, 7n, true, true, true, "store", 1]);
    assert.ok(Math.abs(c.asOf.getTime() - Date.now()) < 60_000);
    assert.equal(typeof c.staleness, "number");
  }
  await fails(db.get("a", { maxError: -1 }), "invalid");
  await fails(db.get("a", { session: "nonsense" }), "invalid");
  const many = await db.getMany(["none", "a"]);
  assert.deepEqual(many.map((c) => [c.key, c.value, c.exists]), [["none", 0n, false], ["a", 7n, true]]);
});

test("lists and sums have every counter once", async () => {
  const db = open();
  const keys = Array.from({ length: 25 }, (_, i) => `k:${String(i).padStart(2, "0")}`);
  await db.batch([...keys.map((key, i) => ({ key, delta: i })), { key: "other" }]);
  const page = await db.list("k:", { limit: 10 });
  assert.equal(page.items.length, 10);
  assert.ok(page.next);
  const seen: string[] = [];
  for await (const c of db.listAll("k:", { limit: 7 })) seen.push(c.key);
  assert.deepEqual(seen, keys);
  const s = await db.sum("k:");
  assert.deepEqual([s.sum, s.keys, s.exact, s.complete, s.next], [300n, 25n, true, true, undefined]);
  await fails(db.list("x", { cursor: page.next! }), "invalid");
});

test("a batch decides each operation by itself, and once", async () => {
  const db = open();
  await db.set("full", 2n ** 63n - 1n);
  const ops = [{ key: "a", delta: 2 }, { key: "full" }, { key: "b", token: "mine", who: "me" }, { key: "a", delta: large }];
  for (const replayed of [false, true]) {
    const rs = await db.batch(ops, { token: "T" });
    assert.deepEqual(rs.map((r) => r.receipt?.applied), [2n, undefined, 1n, large]);
    assert.equal((rs[1]!.error as { kind?: string }).kind, "overflow");
    assert.equal(rs[0]!.receipt!.replayed, replayed);
  }
  assert.equal((await db.get("a")).value, large + 2n);
  assert.equal((await db.lookup("b", "mine")).state, "applied");
  await fails(db.batch(Array.from({ length: 10_001 }, () => ({ key: "a" }))), "too_large");
});

test("bounds hold, and say what they refused", async () => {
  const db = open();
  await db.add("shoes", 5, { ceiling: 9 });
  const e = await fails<BoundError>(db.add("shoes", -7, { floor: 0 }), "bound");
  assert.ok(e instanceof BoundError);
  assert.deepEqual([e.value, e.asked, e.floor, e.ceiling, e.status], [5n, -7n, 0n, undefined, 409]);
  assert.equal((await db.add("shoes", -7, { floor: 0, saturate: true })).applied, -5n);
  const buyers = await Promise.allSettled(Array.from({ length: 30 }, () => db.add("sale", -1, { floor: -10 })));
  assert.equal(buyers.filter((b) => b.status === "fulfilled").length, 10);
  assert.equal((await db.get("sale")).value, -10n);
  assert.ok((await db.add("short", 1, { ttl: 3_600_000 })) && (await db.get("short")).expiresAt);
});

test("what is reserved is not available, and ends once", async () => {
  const db = open();
  await db.set("seats", 10);
  const r = await db.reserve("seats", 4, "10m", { who: "ana", token: "cart-7" });
  assert.deepEqual([r.state, r.amount, r.who, r.stock], ["open", 4n, "ana", { value: 10n, reserved: 4n, available: 6n, open: 1n, exact: true }]);
  assert.equal((await db.reserve("seats", 4, "10m", { who: "ana", token: "cart-7" })).id, r.id);
  const e = await fails<BoundError>(db.reserve("seats", 7, "10m"), "bound");
  assert.deepEqual([e.asked, e.available], [7n, 6n]);
  assert.ok((await db.extend(r.id, "1h")).expiresAt! > r.expiresAt!);
  assert.deepEqual((await db.reservations("seats")).items.map((x) => x.id), [r.id]);
  const done = await db.commit(r.id, 3);
  assert.deepEqual([done.state, done.committed, done.stock?.value], ["committed", 3n, 7n]);
  assert.equal((await db.commit(r.id, 3)).replayed, true);
  await fails(db.release(r.id), "ended");
  assert.equal((await db.reservation(r.id)).state, "committed");
  const other = await db.reserve("seats", 7, 60_000, { value: false });
  assert.equal(other.stock, undefined);
  assert.equal((await db.release(other.id)).stock!.available, 7n);
});

test("limits admit no more than they say", async () => {
  const db = open();
  const limits = [{ rate: 3, per: "1h" }];
  const asked = await Promise.all(Array.from({ length: 10 }, () => db.allow("api", { who: "ana", limits })));
  assert.equal(asked.filter((d) => d.allowed).length, 3);
  const no = await db.allow("api", { who: "ana", limits });
  assert.deepEqual([no.allowed, no.limit, no.remaining], [false, 3n, 0n]);
  assert.ok(no.retryAfter > 0 && no.resetAfter > 0);
  await db.define([{ pattern: "api", limits: [{ rate: 2n, per: "1h" }] }], { ifMatch: "*" });
  const d = await db.allow("api", { who: "bob", token: "once" });
  assert.deepEqual(await db.allow("api", { who: "bob", token: "once" }), { ...d, replayed: true });
  assert.equal((await db.client("api", "bob")).remaining, 1n);
  await db.resetLimit("api", "bob");
  assert.equal((await db.client("api", "bob")).remaining, 2n);
});

test("a user has one choice", async () => {
  const db = open();
  await db.define([{ pattern: "post:*", choices: ["like", "dislike"] }, { pattern: "view:*", once: "1d" }], { ifMatch: "*" });
  const r = await db.react("post:1", "ana", "like");
  assert.deepEqual([r.choice, r.before, r.changed, r.counts], ["like", "", true, { dislike: 0n, like: 1n }]);
  assert.equal((await db.react("post:1", "ana", "like")).changed, false);
  assert.equal((await db.react("post:1", "ana", "dislike", { value: false })).counts, undefined);
  await db.react("post:1", "read", "like");
  assert.deepEqual(await db.reactions("post:1"), { counts: { dislike: 1n, like: 1n }, users: 2n });
  assert.deepEqual(await db.choices("ana", ["post:1", "post:2"]), { "post:1": "dislike", "post:2": "" });
  assert.deepEqual((await db.members("post:1", { choice: "dislike" })).items, [{ user: "ana", choice: "dislike" }]);
  assert.equal((await db.unreact("post:1", "ana")).before, "dislike");
  assert.equal((await db.add("view:1", 1, { who: "ana" })).duplicate, false);
  assert.equal((await db.add("view:1", 1, { who: "ana" })).duplicate, true);
});

test("one add counts by time, by dimension and by user, and is written down", async () => {
  const db = open();
  const book = await db.definitions();
  const changed = await db.define(
    [{ pattern: "v:*", windows: [{ every: "1h", keep: "30d" }], dimensions: ["country"], ledger: "all", unique: "who", floor: -large }],
    { ifMatch: book.etag },
  );
  assert.equal(changed.id, 1n);
  await fails(db.define([{ pattern: "w:*" }], { ifMatch: '"d7"' }), "changed");
  const same = await db.definitions();
  await db.define(same.definitions, { ifMatch: same.etag }); // what was read can be written back
  await db.add("v:1", 7, { who: "u1", dims: { country: "DE" }, token: "v1" });
  await db.add("v:1", 2, { who: "u2", dims: { country: "FR" } });
  await db.adjust("v:1", -1, { reason: "bots", actor: "ana", dims: { country: "DE" } });
  const range = await db.range("v:1", { from: "-1h", step: "1h", rate: true });
  assert.equal(range.sum, 8n);
  assert.equal(range.points.reduce((sum, p) => sum + p.value, 0n), 8n);
  assert.equal((await db.rangeOf("v:", { from: new Date(Date.now() - 3600_000), step: "1h" })).sum, 8n);
  const by = await db.by("v:1", "country", { top: 10 });
  assert.deepEqual(by.values, [{ values: ["DE"], count: 6n }, { values: ["FR"], count: 2n }]);
  const u = await db.uniques("v:1", { by: "country" });
  assert.deepEqual([u.count, u.lower, u.upper, u.exact, u.values.length], [2n, 2n, 2n, true, 2]);
  assert.equal(await db.addUniques("v:1", ["u3"]), true);
  assert.equal((await db.uniques("v:1", { with: "v:2" })).overlap?.only.count, 3n);
  assert.equal((await db.undo("v:1", "v1", { reason: "a test" })).applied, -7n);
  const page = await db.ledger("v:1", { limit: 2 });
  assert.deepEqual(page.items.map((l) => [l.kind, l.delta]), [["undo", -7n], ["adjust", -1n]]);
  assert.deepEqual(page.items[1]!.dims, { country: "DE" });
  assert.ok(page.next);
});

test("top lists say what came most often", async () => {
  const db = open();
  await db.define([{ pattern: "item:*", windows: [{ every: "1h", keep: "7d" }], top: [{ name: "sold", by: "key" }] }], { ifMatch: "*" });
  await db.batch([{ key: "item:boots", delta: 3 }, { key: "item:hats" }]);
  const top = await db.top("sold", { k: 1 });
  assert.deepEqual(top.items, [{ item: "item:boots", count: 3n, lower: 3n, upper: 3n, rise: undefined }]);
  assert.deepEqual([top.total, top.exact, top.key, top.by], [4n, true, undefined, "key"]);
  const rising = await db.top("sold", { from: "-1h", trend: true });
  assert.equal(rising.items[0]!.rise!.count, 3n);
});

test("sketches tell of items, and how wrong they may be", async () => {
  const db = open();
  assert.equal(await db.makeSketch("seen", { kind: "filter", capacity: 1000 }, { ttl: "1h" }), true);
  assert.equal(await db.makeSketch("seen", { kind: "filter", capacity: 1000 }), false);
  const added = await db.addItems("seen", ["ana", { item: "bob" }, "ana"], { token: "s1" });
  assert.deepEqual([added.items.map((x) => x.added), added.replayed, added.kind], [[true, true, false], false, "filter"]);
  assert.deepEqual((await db.addItems("seen", ["ana", { item: "bob" }, "ana"], { token: "s1" })).replayed, true);
  await assert.rejects(db.addItems("seen", ["eve"], { token: "s1" }), { kind: "token" });
  const asked = await db.askItems("seen", ["ana", "eve"]);
  assert.deepEqual([asked.items.map((x) => x.found), asked.exact], [[true, false], false]);
  assert.ok(asked.error! < 0.01);
  const seen = await db.sketch("seen");
  assert.deepEqual([seen.total, seen.exact, seen.full, seen.shape.capacity, seen.shape.error, seen.shape.growth], [2n, true, false, 1000, 1 / 128, 2]);
  assert.ok(seen.expiresAt! > new Date());

  await db.makeSketch("clicks", { kind: "frequencies", epsilon: 0.01, confidence: 0.99 });
  await db.addItems("clicks", [{ item: "buy", n: 2n ** 60n }, { item: "buy", n: -1 }, "sell"]);
  const clicks = await db.askItems("clicks", ["buy"]);
  assert.deepEqual([clicks.items[0]!.count, clicks.confidence], [2n ** 60n - 1n, 1 - 1 / 128]);
  assert.equal(await db.mergeSketches("twice", [{ key: "clicks", weight: 2 }, "clicks"]), false);
  const twice = await db.sketch("twice");
  assert.deepEqual([twice.total, twice.shape.width, twice.epsilon], [3n * 2n ** 60n, 200, 0.01]);

  await db.makeSketch("trending", { kind: "top", k: 1 });
  await db.addItems("trending", [{ item: "a", n: 3 }]);
  assert.equal((await db.addItems("trending", [{ item: "b", n: 4 }])).items[0]!.expelled, "a");
  const top = await db.sketch("trending", { k: 1 });
  assert.deepEqual(top.items.map((x) => [x.item, x.count, x.listed]), [["b", 4n, true]]);
  assert.deepEqual([top.rest, top.total], [3n, 7n]);

  await db.addUniques("users", ["ana", "bob"]);
  assert.equal((await db.sketch("users")).uniques!.count, 2n);
  await assert.rejects(db.sketch("nothing"), { kind: "absent", status: 404 });
  await assert.rejects(db.addItems("users", ["ana"]), { kind: "not_a_sketch", status: 409 });
  await assert.rejects(db.addItems("clicks", [{ item: "sell", n: -2 }]), { kind: "bound" });
  await db.delete("seen");
  await assert.rejects(db.askItems("seen", ["ana"]), { kind: "absent" });
});

test("watch yields the value now, and each change", async () => {
  const db = open();
  await db.set("a", 1);
  const stop = new AbortController();
  const seen: bigint[] = [];
  for await (const c of db.watch("a", { every: 5, signal: stop.signal })) {
    seen.push(c.value);
    if (c.value < 3n) await db.add("a");
    else stop.abort();
  }
  assert.deepEqual(seen, [1n, 2n, 3n]);
});
