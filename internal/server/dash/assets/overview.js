// The overview: how the server fares now, and in the last minutes.

import { empty, facts, h, mono, panel, problem, s, table, text } from "./dom.js";
import { lines, spark } from "./chart.js";
import { bytes, ms, num, percent, plural, rate, short, span, time, timeOfDay } from "./format.js";
import { encode, get, pause } from "./api.js";

const SECONDS = 300, SPARK = 60;
const doorNames = { http: "REST", resp: "Redis", rpc: "gRPC", statsd: "StatsD" };

function tile(name, hint, part) {
  const value = h("span", { class: "tile-value" }, "–");
  const more = h("span", { class: "tile-more" }, "\u00a0");
  const line = part ? h("span", { class: "part-track", "aria-hidden": "true" }, h("span", { class: "part-bar" })) : spark(SPARK, `${name}, the last minute`);
  const el = h("div", { class: "tile", title: hint }, h("span", { class: "tile-name" }, name), value, more, line);
  return Object.assign(el, {
    // set shows a value, and what it was, or which part of all it is.
    set(now, words, values) {
      text(value, now);
      text(more, words || "\u00a0");
      if (part) line.firstChild.style.width = `${Math.min(100, 100 * (values || 0))}%`;
      else line.set(values);
    },
    bad(is) {
      el.classList.toggle("bad", is);
    },
  });
}

export async function overview(root, page) {
  const tiles = {
    writes: tile("Writes a second", "Writes of callers, each by itself though many are combined on the way"),
    reads: tile("Reads a second", "Cells and totals that were read"),
    lag: tile("Durable in", "How long it takes to make a write durable: a sync of the log, or a batch to the store"),
    errors: tile("Errors a second", "Calls that failed, and not by their callers' fault"),
    memory: tile("Memory", "What the process holds", true),
    disk: tile("Disk", "What the rows take", true),
  };
  const sub = h("p", { class: "sub" }, "\u00a0");
  const status = h("span", { class: "pill" }, "…");
  const chart = lines("Writes and reads a second, the last five minutes", { number: short, moment: timeOfDay, n: SECONDS });
  const key = h("ul", { class: "key" },
    h("li", {}, s("svg", { width: "22", height: "8", "aria-hidden": "true" }, s("line", { class: "line line-0", x1: 0, x2: 22, y1: 4, y2: 4 })), "Writes"),
    h("li", {}, s("svg", { width: "22", height: "8", "aria-hidden": "true" }, s("line", { class: "line line-1", x1: 0, x2: 22, y1: 4, y2: 4 })), "Reads"));
  const doors = table("Doors", [{ name: "Door" }, { name: "Address", wide: true }, { name: "Calls/s", num: true }, { name: "p50", num: true }, { name: "p99", num: true }, { name: "Errors/s", num: true }, { name: "Open", num: true, wide: true }]);
  const store = facts(["Store", "Durability", "Waiting", "Split counters", "Totals kept", "Last verify"]);
  const hot = hottest();
  const traffic = panel("The last five minutes", chart);
  traffic.tools.append(key);
  const fleet = await servers(page);
  root.append(
    h("div", { class: "title" }, h("h1", {}, "Overview"), status), sub,
    h("div", { class: "tiles" }, Object.values(tiles)),
    traffic, fleet,
    h("div", { class: "halves" }, panel("Doors", doors), panel("Store", store)),
    hot,
  );

  const past = { writes: [], reads: [], errors: [], lag: [] };
  const push = (list, v) => {
    list.push(v);
    if (list.length > SECONDS) list.shift();
  };
  page.stream("api/v1/live", {
    denied() {
      root.replaceChildren(h("h1", {}, "Overview"), problem({ title: "Not granted", message: "the overview is of all namespaces, and your key is granted less. Counters, policies, limits and stock of what it is granted are on the other pages" }));
    },
    overview(o) {
      const { rates, memory, disk } = o;
      if (o.history) {
        past.writes = o.history.writes;
        past.reads = o.history.reads;
        past.errors = o.history.errors;
        past.lag = o.history.lag_ms.map((v) => v ?? 0);
      } else {
        push(past.writes, rates.writes);
        push(past.reads, rates.reads);
        push(past.errors, rates.errors);
        push(past.lag, o.durability.lag_ms ?? 0);
      }
      const { server } = o;
      status.className = `pill ${server.status}`;
      text(status, { ready: "Ready", degraded: "Degraded", unavailable: "Unavailable" }[server.status]);
      text(sub, [`${server.store} store`, server.version, `up ${span(new Date(o.at) - new Date(server.started_at))}`, server.read_only && "read-only", server.detail].filter(Boolean).join(" · "));
      tiles.writes.set(rate(rates.writes), rates.replayed ? `${rate(rates.replayed)} repeats` : rates.refused ? `${rate(rates.refused)} refused` : "", past.writes);
      tiles.reads.set(rate(rates.reads), "", past.reads);
      tiles.lag.set(ms(o.durability.lag_ms), o.durability.lag_ms === undefined ? "nothing to write" : server.shared ? "a batch to the store" : "a sync of the log", past.lag);
      tiles.errors.set(rate(rates.errors), rates.unknown ? `${rate(rates.unknown)} unknown outcomes` : rates.errors ? "see the log" : "none", past.errors);
      tiles.errors.bad(rates.errors > 0);
      tiles.memory.set(bytes(memory.process_bytes), memory.limits.total ? `of ${bytes(memory.limits.total)}` : "", memory.process_bytes / memory.limits.total);
      if (disk) {
        tiles.disk.set(bytes(disk.bytes), `${bytes(disk.free_bytes)} free${disk.full ? ": full" : ""}`, disk.bytes / (disk.bytes + disk.free_bytes));
        tiles.disk.bad(disk.full);
      } else if (o.durability.queue !== undefined) {
        text(tiles.disk.querySelector(".tile-name"), "Waiting");
        tiles.disk.set(num(o.durability.queue), `of ${num(o.durability.queue_max)}`, o.durability.queue / o.durability.queue_max);
      } else tiles.disk.set("none", "nothing is kept");
      chart.set([{ name: "writes", values: past.writes }, { name: "reads", values: past.reads }], new Date(o.at).getTime(), 1000);
      doors.set(o.doors.map((d) => [doorNames[d.name] ?? d.name, mono(d.address), rate(d.calls_per_second), ms(d.p50_ms), ms(d.p99_ms), rate(d.errors_per_second), num(d.connections)]));
      store.set("Store", `${server.store}${server.shared ? ", shared with other servers" : ""}${server.partitions > 1 ? `, ${num(server.partitions)} partitions${server.down ? `, ${num(server.down.length)} down` : ""}` : ""}`);
      store.set("Durability", { synced: "synced: survives power loss", written: "written: survives the process", memory: "memory: survives nothing" }[server.durability]);
      store.set("Waiting", o.durability.queue !== undefined ? `${num(o.durability.queue)} changes, ${percent(o.durability.queue, o.durability.queue_max)} of the room` : o.durability.unsaved_cells !== undefined ? `${plural(o.durability.unsaved_cells, "cell")} for the next checkpoint` : "nothing");
      store.set("Split counters", o.layouts.split_counters ? `${num(o.layouts.split_counters)}, over ${num(o.layouts.shards)} shards, at most ${num(o.layouts.shards_most)}` : "none");
      store.set("Totals kept", o.rollups.kept ? `${num(o.rollups.kept)}; the oldest is ${o.rollups.age_ratio.toFixed(1)} intervals old` : "none: every read is exact");
      store.set("Last verify", o.verified ? `${o.verified.drift ? plural(o.verified.drift, "difference") : "no differences"}, ${time(o.verified.at)}` : "none since the start");
      hot.set(o.hot);
    },
  });
}

// servers makes the table of all servers that share the store, as each said last. It is
// there when there may be others.
async function servers(page) {
  const rows = table("Servers", [{ name: "Server" }, { name: "Spoke" }, { name: "Writes/s", num: true }, { name: "Reads/s", num: true }, { name: "Errors/s", num: true, wide: true }, { name: "p99 of its doors", wide: true },
    { name: "Durable in", num: true, wide: true }, { name: "Memory", num: true, wide: true }, { name: "Up", wide: true }, { name: "Version", wide: true }]);
  const sub = h("p", { class: "sub" });
  const el = panel("Servers of this store", rows, sub);
  el.hidden = true;
  const row = (o) => {
    const main = o.doors[0];
    const spoke = o.self ? "this one" : o.silent ? `▲ Silent for ${span(o.age_ms)}` : o.age_ms < 1000 ? "just now" : `${span(o.age_ms)} ago`;
    return h("tr", { class: o.silent ? "gone" : undefined },
      h("th", { scope: "row" }, h("span", { class: "host" }, o.host || "–"), " ", main && mono(main.address, "ns"), o.read_only && h("span", { class: "pill" }, "read-only")),
      h("td", {}, h("span", { class: `pill ${o.silent ? "unavailable" : o.status}`, title: o.detail }, spoke), o.status !== "ready" && ` store ${o.status}`),
      h("td", { class: "num" }, rate(o.writes_per_second)), h("td", { class: "num" }, rate(o.reads_per_second)), h("td", { class: "num wide" }, rate(o.errors_per_second)),
      h("td", { class: "wide" }, o.doors.filter((d) => d.p99_ms !== undefined).map((d) => `${doorNames[d.name] ?? d.name} ${ms(d.p99_ms)}`).join(" · ") || "–"),
      h("td", { class: "num wide" }, ms(o.lag_ms)), h("td", { class: "num wide" }, bytes(o.memory_bytes)),
      h("td", { class: "wide" }, o.silent ? "–" : span(Date.now() - new Date(o.started_at))), h("td", { class: "wide" }, o.version));
  };
  const load = async () => {
    try {
      const list = await get("api/v1/servers", { signal: page.signal });
      el.hidden = !list.shared;
      const silent = list.servers.filter((o) => o.silent).length;
      rows.body.replaceChildren(...list.servers.map(row));
      text(sub, [plural(list.servers.length, "server"), silent && `${num(silent)} silent: lost, or without the store`, list.detail].filter(Boolean).join("; ") + ".");
      sub.classList.toggle("problem", !list.complete);
    } catch (err) {
      if (!page.signal.aborted && !el.hidden) text(sub, `${err.title ?? "The servers can't be listed"}: ${err.message}.`);
    }
  };
  const timer = setInterval(() => document.hidden || load(), 5000);
  page.signal.addEventListener("abort", () => clearInterval(timer));
  await Promise.race([load(), pause(1000, page.signal)]); // so that nothing moves
  return el;
}

// hottest makes the table of the hottest counters. A row stays with its counter.
function hottest() {
  const rates = new Map();
  const none = empty("No counter is busy now. Count something, and find it under ", h("a", { href: "#/counters" }, "Counters"), ": ",
    mono("curl -X POST " + location.origin + "/api/v1/counters/hello/increment"));
  const rows = table("Hottest counters", [{ name: "Counter" }, { name: "Writes/s", num: true }, { name: "Last minute" }, { name: "Share", wide: true, num: true }, { name: "Shards", num: true, wide: true }, { name: "p99", num: true, wide: true }, { name: "Total's age", num: true, wide: true }]);
  const el = panel("Hottest counters", rows, none);
  rows.hidden = true;
  const made = new Map();
  el.set = (found) => {
    rows.hidden = found.length === 0;
    none.hidden = found.length > 0;
    const all = found.reduce((sum, c) => sum + c.rate, 0);
    const kept = new Map();
    const next = found.map((c) => {
      const id = `${c.namespace}\n${c.key}`;
      let row = made.get(id);
      if (!row) {
        const cells = [1, 2, 3, 4, 5].map((i) => h("td", { class: i === 1 ? "num" : "num wide" }));
        const line = spark(SPARK, `Writes to ${c.key}, the last minute`);
        row = h("tr", {}, h("th", { scope: "row" }, link(c.namespace, c.key)), cells[0], h("td", { class: "spark-cell" }, line), cells.slice(1));
        row.parts = { cells, line };
      }
      const past = c.rates ?? [...(rates.get(id) ?? []), c.rate].slice(-SPARK);
      rates.set(id, past);
      const { cells, line } = row.parts;
      text(cells[0], rate(c.rate));
      line.set(past);
      text(cells[1], percent(c.rate, all));
      text(cells[2], num(c.shards));
      text(cells[3], ms(c.p99_ms));
      text(cells[4], c.rollup_age_ms === undefined ? "–" : span(c.rollup_age_ms));
      kept.set(id, row);
      return row;
    });
    // Rows stay where they are while somebody is among them.
    const same = next.length === rows.body.children.length && next.every((row, i) => row === rows.body.children[i]);
    const busy = rows.body.contains(document.activeElement) || rows.matches(":hover");
    if (same) return settle(kept);
    if (busy) {
      for (const row of [...rows.body.children]) if (!next.includes(row) && !row.contains(document.activeElement)) row.remove();
      rows.body.append(...next.filter((row) => !row.parentNode));
    } else rows.body.replaceChildren(...next);
    settle(kept);
  };
  const settle = (kept) => {
    made.clear();
    for (const [id, row] of kept) made.set(id, row);
    for (const id of rates.keys()) if (!kept.has(id)) rates.delete(id);
  };
  return el;
}

// link leads to the page of a counter.
export function link(ns, key) {
  return h("a", { class: "counter-link", href: address(ns, key) }, ns !== "default" && h("span", { class: "ns" }, `${ns} / `), key);
}

export const address = (ns, key) => `#/counter/${encode(ns)}/${encode(key)}`;
