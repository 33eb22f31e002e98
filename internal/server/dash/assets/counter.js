// A counter: what it is now, what it was, and why it counts as it does.

import { empty, facts, h, mono, panel, problem, sentence, table, text } from "./dom.js";
import { action, integer, refusal } from "./actions.js";
import { api, call, encode, get, pause, query } from "./api.js";
import { bars, shares, spark } from "./chart.js";
import { num, percent, plural, rate, short, span, tick, time } from "./format.js";
import { link } from "./overview.js";
import { definitionText, policyText } from "./policies.js";
import { may } from "./session.js";

const SPARK = 60;
const ranges = [["1h", "1 h"], ["6h", "6 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ["90d", "90 d"]];

export async function counter(root, page) {
  const [ns, key] = page.args;
  const at = (path) => api(ns, `counters/${encode(key)}${path}`);
  const value = h("output", { class: "big", "aria-live": "off" }, "–");
  const badge = h("span", { class: "pill" }, "…");
  const bounds = h("p", { class: "sub" }, "\u00a0");
  const line = spark(SPARK, "Changes a second, the last minute");
  const pace = h("span", { class: "pace" }, "\u00a0");
  const now = facts(["As of", "Source", "Shards", "Version", "Expires"]);
  root.append(
    h("div", { class: "title" }, h("h1", { class: "key-name" }, key), ns !== "default" && h("span", { class: "pill" }, ns), badge),
    h("section", { class: "panel value-panel" }, h("div", { class: "value-now" }, value, bounds), h("div", { class: "value-pace" }, pace, line), now),
  );
  const rest = h("div", { class: "parts" });
  root.append(rest);

  const changes = [];
  let last, changed = () => {};
  const show = (c) => {
    if (last === undefined || last !== c.value) changed();
    last = c.value;
    text(value, num(c.value));
    badge.className = `pill ${c.exact && c.complete ? "ready" : "degraded"}`;
    text(badge, !c.exists ? "Does not exist" : c.exact ? (c.complete ? "Exact" : "Not complete") : "Not exact");
    if (!c.exists) badge.className = "pill";
    text(bounds, c.lower === undefined ? "No bounds are proved" : c.lower === c.upper ? "Proved exact when it was read" : `Proved to lie between ${num(c.lower)} and ${num(c.upper)}`);
    now.set("As of", `${time(c.as_of)}${c.staleness_ms ? `, ${span(c.staleness_ms)} old` : ""}`);
    now.set("Source", { store: "the store", rollup: "a total kept by its policy", recalled: "the last value read: the store can't be reached", replica: "a replica that may be behind" }[c.source] ?? c.source);
    now.set("Shards", num(c.shards));
    now.set("Version", c.version === undefined ? "several cells" : String(c.version));
    now.set("Expires", c.expires_at ? time(c.expires_at) : "never");
  };
  let from;
  page.stream(api(ns, `live${query({ key })}`), {
    counter: show,
    problem: (p) => text(bounds, sentence(p.detail)),
    denied: () => poll(page, () => get(at(""), { signal: page.signal }).then(show, (err) => text(bounds, sentence(err.message)))),
    overview({ hot }) {
      const known = hot.find((c) => c.namespace === ns && c.key === key)?.rates;
      if (known && !changes.length) changes.push(...known);
      if (last === undefined) return;
      const by = from === undefined ? 0 : Number(last) - Number(from);
      from = last;
      changes.push(Math.abs(by));
      if (changes.length > SPARK) changes.shift();
      line.set(changes);
      const lately = changes.slice(-5);
      text(pace, `${rate(lately.reduce((a, b) => a + b, 0) / lately.length)} a second`);
    },
  });

  const why = await get(api(ns, `policies/explain${query({ key })}`), { signal: page.signal });
  const defined = why.definition?.definitions?.[0];
  const views = defined ?? {};
  // The parts appear together, when they have something to show: nothing moves then.
  const parts = [], left = h("div", { class: "column" }), right = h("div", { class: "column" });
  const add = (el, into) => parts.push({ el, into });
  // What is shown of a range of time follows the range that is picked.
  const range = { now: undefined, told: [], pick(next) { this.now = next; this.told.forEach((f) => f()); } };
  if (views.windows?.length) add(windows(page, at, views, (f) => (changed = f), range), rest);
  if (views.choices?.length) add(reactions(page, ns, key, views.choices), left);
  if (views.unique && !views.windows?.length) add(uniques(page, ns, key), left);
  if (views.reservations || views.floor !== undefined) add(reservations(page, ns, key), left);
  for (const one of [].concat(views.top ?? [])) add(tops(page, ns, key, one, range), parts.filter((p) => p.into === left).length > parts.filter((p) => p.into === right).length ? right : left);
  if (views.ledger && (views.ledger.record ?? views.ledger) !== "off") add(ledger(page, at), parts.some((p) => p.into === left) ? right : left);
  if (!views.choices?.length && !views.limits?.length) add(adding(ns, key, views), parts.some((p) => p.into === left) && parts.filter((p) => p.into === left).length >= parts.filter((p) => p.into === right).length ? right : left);
  add(tokens(page, ns, key), parts.some((p) => p.into === left) ? right : left);
  const because = reasons(why, defined);
  await Promise.race([Promise.allSettled(parts.map((p) => p.el.ready)), pause(2000, page.signal)]);
  for (const { el, into } of parts) into.append(el);
  rest.append(right.children.length ? h("div", { class: "halves top-aligned" }, left, right) : left, because);
}

// poll calls a function now and then, while the page is seen.
function poll(page, load) {
  load();
  const timer = setInterval(() => document.hidden || load(), 2000);
  page.signal.addEventListener("abort", () => clearInterval(timer));
}

// adding is a form that counts, with what the definition of the counter asks of an event.
function adding(ns, key, views) {
  const dims = [...new Set([...(views.dimensions ?? []).flatMap((d) => d.by ?? d), ...[].concat(views.top ?? []).map((l) => l.by)])].filter((d) => d && d !== "key" && d !== "who");
  const named = views.unique || views.once || [].concat(views.top ?? []).some((l) => l.by === "who");
  return panel("Add", action({
    title: "Add to the counter", grant: "write", ns, key,
    fields: [
      { name: "delta", label: "Amount", value: "1", number: true, short: true },
      ...(named ? [{ name: "who", label: "User", optional: true }] : []),
      ...dims.map((d) => ({ name: `dims.${d}`, label: d, optional: true })),
    ],
    buttons: [{ name: "add", label: "Add", primary: true }],
    async run(values, _, token) {
      const given = dims.filter((d) => values[`dims.${d}`]).map((d) => [d, values[`dims.${d}`]]);
      const json = { delta: integer(values.delta) };
      if (values.who) json.who = values.who;
      if (given.length) json.dims = Object.fromEntries(given);
      const r = await call("POST", api(ns, `counters/${encode(key)}/increment`), { json, headers: { "Idempotency-Key": token } });
      if (r.duplicate) return "Nothing changed: this user was counted in the window already.";
      return `${Number(r.applied) >= 0 ? "+" : ""}${num(r.applied)}${r.value === undefined ? "" : `: the value is ${num(r.value)}`}, ${r.durability}${r.replayed ? ", counted by the press before" : ""}.`;
    },
  }));
}

// windows shows what was counted in a range of time: by step, by dimension, and by how
// many users.
function windows(page, at, views, whenChanged, picks) {
  const picked = h("span", { class: "segments", role: "group", "aria-label": "Range" });
  const chart = bars("What was counted", { number: short, moment: (t, all) => (all ? tick(t, all) : time(t)) });
  const words = h("p", { class: "sub" }, "\u00a0");
  const by = h("div", { class: "thirds" });
  const from = h("input", { type: "datetime-local", name: "from", "aria-label": "From" });
  const to = h("input", { type: "datetime-local", name: "to", "aria-label": "To" });
  const own = h("form", { class: "bar-form small" }, h("label", { class: "field" }, "From ", from), h("label", { class: "field" }, "To ", to), h("button", { type: "submit" }, "Show"));
  const wrong = h("p", { class: "problem", role: "alert" });
  const el = panel("What was counted when", chart, words, h("details", {}, h("summary", {}, "Another range"), own, wrong), by);
  el.tools.append(picked);
  const keep = Math.max(...views.windows.map((w) => (w.keep ? days(w.keep) : Infinity)));
  const offered = ranges.filter(([r], i) => i < 3 || days(r) <= keep * 1.01);
  const buttons = new Map(offered.map(([r, name]) => [r, h("button", { type: "button", onclick: () => choose({ from: `-${r}`, range: r }) }, name)]));
  picked.append(...buttons.values());
  let chosen, timer, dirty = false, busy = false;

  const dims = (views.dimensions ?? []).map((d) => (Array.isArray(d) ? d : d.by ?? [d])).map((d) => [].concat(d).join(","));
  const breakdowns = dims.map((name) => {
    const body = h("div", { class: "breakdown" });
    by.append(h("div", {}, h("h3", {}, `By ${name.replace(",", " and ")}`), body));
    return { name, body };
  });
  const crowd = views.unique && h("div", { class: "crowd" });
  if (crowd) by.append(h("div", {}, h("h3", {}, "Different users"), crowd));

  const load = async () => {
    if (busy) {
      dirty = true;
      return;
    }
    busy = true;
    dirty = false;
    const range = { from: chosen.from, to: chosen.to };
    const quiet = (p) => p.catch((err) => ({ err }));
    const [series, ...others] = await Promise.all([
      quiet(get(at(`/range${query(range)}`), { signal: page.signal })),
      ...breakdowns.map((b) => quiet(get(at(`/by/${encode(b.name)}${query({ ...range, top: 8 })}`), { signal: page.signal }))),
      crowd && quiet(get(at("").replace("counters/", "uniques/") + query(range), { signal: page.signal })),
    ]);
    busy = false;
    if (page.signal.aborted) return;
    text(wrong, series.err ? sentence(series.err.message) : "");
    if (!series.err) {
      chart.set(series.points);
      text(words, `${num(series.sum)} in ${plural(series.points.length, "step")} of ${series.step}${series.exact ? ", exact" : ""}${series.complete ? "" : `, not complete${series.complete_from ? ` before ${time(series.complete_from)}` : ""}`}`);
    }
    breakdowns.forEach((b, i) => {
      const got = others[i];
      if (got.err) b.body.replaceChildren(h("p", { class: "problem" }, sentence(got.err.message)));
      else if (!got.values.length) b.body.replaceChildren(empty("Nothing was counted in this range."));
      else {
        const rows = got.values.map((v) => ({ name: v.values ? v.values.map((x) => x || "(none)").join(" · ") : v.value || "(none)", count: v.count }));
        if (got.other) rows.push({ name: "other", count: got.other });
        b.body.replaceChildren(shares(rows, num, percent));
      }
    });
    if (crowd) showCrowd(crowd, others.at(-1));
    if (dirty) later();
  };
  // What is counted now is shown soon, and not with each event.
  const later = () => (timer ??= setTimeout(() => { timer = undefined; load(); }, 2000));
  whenChanged(() => !chosen?.to && later());
  page.signal.addEventListener("abort", () => clearTimeout(timer));
  const choose = (range) => {
    chosen = range;
    for (const [r, b] of buttons) b.setAttribute("aria-pressed", String(r === range.range));
    picks.pick({ from: range.from, to: range.to });
    return load();
  };
  own.addEventListener("submit", (e) => {
    e.preventDefault();
    const moment = (field) => field.value && new Date(field.value).toISOString();
    if (!from.value) text(wrong, "Say from when.");
    else choose({ from: moment(from), to: moment(to) || undefined });
  });
  const fine = views.windows.some((w) => days(w.every) <= 1 / 24);
  const ready = choose(fine ? { from: "-6h", range: "6h" } : buttons.has("30d") ? { from: "-30d", range: "30d" } : { from: "-24h", range: "24h" });
  return Object.assign(el, { ready });
}

function showCrowd(el, got) {
  if (got.err) {
    el.replaceChildren(h("p", { class: "problem" }, sentence(got.err.message)));
    return;
  }
  el.replaceChildren(h("p", { class: "crowd-count" }, num(got.count)),
    h("p", { class: "sub" }, got.exact ? "Exact." : `An estimate: between ${num(got.lower)} and ${num(got.upper)}, with a standard error of ${num(Math.round(got.standard_error))}.`),
    !got.aligned && h("p", { class: "sub" }, "The range was widened to whole windows."));
}

function uniques(page, ns, key) {
  const body = h("div", { class: "crowd" });
  const ready = get(api(ns, `uniques/${encode(key)}`), { signal: page.signal }).catch((err) => ({ err })).then((got) => showCrowd(body, got));
  return Object.assign(panel("Different users", body), { ready });
}

// tops shows a top list: of this counter, or one of all counters that share it; of all
// time, or of the range that is picked above.
function tops(page, ns, key, list, range) {
  const own = list.by !== "key";
  const body = h("div", { class: "breakdown" });
  const words = h("p", { class: "sub" }, "\u00a0");
  const el = panel(own ? `Top ${list.by}` : `${list.name}: the top counters of its pattern`, body, words);
  const path = own ? `counters/${encode(key)}/top/${encode(list.name)}` : `tops/${encode(list.name)}`;
  let ranged = false;
  const load = async () => {
    try {
      const got = await get(api(ns, `${path}${query({ k: 10, ...(ranged ? range.now : {}) })}`), { signal: page.signal });
      body.replaceChildren(got.items.length ? shares(got.items.map((i) => ({ name: own ? i.item : link(ns, i.item), count: i.count })), num, percent) : empty("Nothing was counted yet."));
      text(words, `${num(got.total)} in all${ranged ? `${got.from ? `, since ${time(got.from)}` : ""}${got.complete === false ? ", not complete" : ""}` : ""}. ${got.exact ? "The numbers are exact." : `An item that is not here has at most ${num(got.rest)}.`}`);
    } catch (err) {
      if (!page.signal.aborted) body.replaceChildren(h("p", { class: "problem" }, sentence(err.message)));
    }
  };
  if (range.now) {
    const buttons = ["All time", "The range above"].map((name, i) => h("button", { type: "button", "aria-pressed": String(!i), onclick: () => {
      ranged = i === 1;
      buttons.forEach((b, j) => b.setAttribute("aria-pressed", String(i === j)));
      load();
    } }, name));
    el.tools.append(h("span", { class: "segments", role: "group", "aria-label": "Time" }, buttons));
    range.told.push(() => ranged && load());
  }
  el.ready = load();
  const timer = setInterval(() => document.hidden || load(), 5000);
  page.signal.addEventListener("abort", () => clearInterval(timer));
  return el;
}

function days(text) {
  const units = { ms: 1 / 864e5, s: 1 / 86400, m: 1 / 1440, h: 1 / 24, d: 1, w: 7, mo: 30, y: 365 };
  let sum = 0;
  for (const [, n, unit] of String(text).matchAll(/(\d+(?:\.\d+)?)(ms|mo|[smhdwy])/g)) sum += Number(n) * units[unit];
  return sum || Infinity;
}

function reactions(page, ns, key, choices) {
  const body = h("div", {});
  const load = async () => {
    try {
      const got = await get(api(ns, `reactions/${encode(key)}`), { signal: page.signal });
      const rows = choices.map((name) => ({ name, count: got.counts[name] ?? 0 }));
      body.replaceChildren(shares(rows, num, percent), h("p", { class: "sub" }, `${plural(got.users, "user")} in all`));
    } catch (err) {
      if (!page.signal.aborted) body.replaceChildren(problem(err, load));
    }
  };
  const of = (values) => api(ns, `reactions/${encode(key)}/${encode(values.user)}`);
  const look = action({
    title: "What has a user chosen?", grant: may("decide", ns, key) ? "decide" : "read", ns, key, reads: true,
    fields: [{ name: "user", label: "What has a user chosen?", hint: "user" }], buttons: [{ name: "look", label: "Look" }],
    async run(values) {
      const got = await get(of(values), { signal: page.signal });
      return got.choice ? `${values.user} has chosen ${got.choice}.` : `${values.user} has chosen nothing.`;
    },
  });
  const react = action({
    title: "React for a user", grant: "decide", ns, key,
    fields: [{ name: "user", label: "React as", hint: "user" }],
    buttons: [...choices.map((c) => ({ name: `=${c}`, label: c })), { name: "back", label: "Take back" }],
    async run(values, button, token) {
      const headers = { "Idempotency-Key": token };
      const got = button === "back" ? await call("DELETE", of(values), { headers }) : await call("PUT", of(values), { json: { choice: button.slice(1) }, headers });
      load();
      if (!got.changed) return got.choice ? `${values.user} had chosen ${got.choice} already.` : `${values.user} had chosen nothing.`;
      return got.choice ? `${values.user} has chosen ${got.choice}${got.before ? `, and ${got.before} before` : ""}.` : `${values.user} has taken back ${got.before}.`;
    },
  });
  const el = panel("Reactions", body, react, look);
  el.ready = load();
  const timer = setInterval(() => document.hidden || load(), 2000);
  page.signal.addEventListener("abort", () => clearInterval(timer));
  return el;
}

// reservations shows what is reserved of a counter, and reserves.
export function reservations(page, ns, key) {
  const sums = facts(["In all", "Reserved", "Available"]);
  const rows = table("Open reservations", [{ name: "Id" }, { name: "Amount", num: true }, { name: "For" }, { name: "Expires" }, { name: "End it" }]);
  const more = h("p", { class: "sub" });
  const none = empty("Nothing is reserved now.");
  const said = h("div", { class: "said", role: "status" });
  const granted = may("decide", ns, key);
  const made = new Map(); // rows by the id of their reservation: whoever is among them stays there
  const told = (words) => said.replaceChildren(h("p", { class: "done" }, `✓ ${words}`));
  const end = async (r, verb, json) => {
    const row = made.get(r.id), inside = row?.el.contains(document.activeElement);
    try {
      const got = await call("POST", api(ns, `reservations/${encode(r.id)}/${verb}`), { json });
      told({ commit: `${num(got.committed)} committed: it is taken for good.`, release: `${num(got.amount)} released: it is available again.`, extend: `Extended until ${time(got.expires_at)}.` }[verb]);
    } catch (err) {
      said.replaceChildren(refusal(err));
    }
    await load();
    if (inside && !row.el.isConnected) form.querySelector("input").focus({ preventScroll: true });
  };
  const rowOf = (r) => {
    const amount = h("td", { class: "num" }), expires = h("td", { class: "same-line" });
    const button = (name, words, verb, json) => h("button", { type: "button", class: "small-button", disabled: !granted, title: words, "aria-label": `${name} ${r.id}`, onclick: () => end(r, verb, json?.()) }, name);
    const el = h("tr", {}, h("th", { scope: "row" }, h("code", { class: "id", title: r.id }, r.id)), amount, h("td", {}, h("span", { class: "who", title: r.who }, r.who || "–")), expires,
      h("td", {}, h("span", { class: "buttons row-buttons" },
        button("Commit", "Take it for good", "commit"), button("Release", "Make it available again", "release"),
        button("Extend", "Have it expire as much later as the form says", "extend", () => ({ ttl: form.querySelector("[name=ttl]").value || "5m" })))));
    return { el, amount, expires };
  };
  const form = action({
    title: "Reserve", grant: "decide", ns, key,
    fields: [
      { name: "amount", label: "Reserve", value: "1", number: true, short: true }, { name: "ttl", label: "for", value: "5m", short: true },
      { name: "who", label: "User", optional: true },
    ],
    buttons: [{ name: "reserve", label: "Reserve", primary: true }],
    async run(values, _, token) {
      const json = { amount: integer(values.amount), ttl: values.ttl };
      if (values.who) json.who = values.who;
      const got = await call("POST", api(ns, `counters/${encode(key)}/reserve`), { json, headers: { "Idempotency-Key": token } });
      load();
      return `${num(got.amount)} reserved until ${time(got.expires_at)}; ${num(got.available)} available.`;
    },
  });
  const body = h("div", { class: "column" }, sums, rows, none, more, said);
  const el = panel("Reservations", body, form);
  const load = async () => {
    try {
      const got = await get(api(ns, `reservations${query({ key, limit: 20 })}`), { signal: page.signal });
      if (!sums.isConnected && el.isConnected) body.replaceChildren(sums, rows, none, more, said);
      sums.set("In all", num(got.value));
      sums.set("Reserved", num(got.reserved));
      sums.set("Available", num(got.available));
      rows.hidden = got.reservations.length === 0;
      none.hidden = !rows.hidden;
      const open = new Set(got.reservations.map((r) => r.id));
      for (const [id, row] of made) {
        if (open.has(id)) continue;
        row.el.remove();
        made.delete(id);
      }
      got.reservations.forEach((r, i) => {
        if (!made.has(r.id)) made.set(r.id, rowOf(r));
        const row = made.get(r.id);
        text(row.amount, num(r.amount));
        text(row.expires, `in ${span(Math.max(1000, new Date(r.expires_at) - Date.now()))}`);
        if (rows.body.children[i] !== row.el) rows.body.insertBefore(row.el, rows.body.children[i] ?? null);
      });
      text(more, got.next ? `The first ${num(got.reservations.length)} of ${num(got.open)}.` : "");
    } catch (err) {
      if (!page.signal.aborted) body.replaceChildren(problem(err, load));
    }
  };
  el.ready = load();
  const timer = setInterval(() => document.hidden || load(), 2000);
  page.signal.addEventListener("abort", () => clearInterval(timer));
  return el;
}

function ledger(page, at) {
  const rows = table("Ledger", [{ name: "When" }, { name: "Kind" }, { name: "Change", num: true }, { name: "Value", num: true }, { name: "Actor", wide: true }, { name: "Reason" }, { name: "Source", wide: true }]);
  const older = h("button", { type: "button", hidden: true }, "Older");
  const el = panel("Ledger", rows, older);
  let all = [], cursor;
  const load = async () => {
    try {
      const got = await get(at(`/ledger${query({ limit: 20, cursor })}`), { signal: page.signal });
      all = all.concat(got.entries);
      cursor = got.cursor;
      older.hidden = !cursor;
      rows.set(all.map((l) => [time(l.at), l.undone ? `${l.kind} (undone)` : l.kind, l.delta === undefined ? "–" : `${Number(l.delta) > 0 ? "+" : ""}${num(l.delta)}`, num(l.value), l.erased ? "(erased)" : l.actor || "–", l.reason || "–", l.source || "–"]));
      if (!all.length) {
        rows.hidden = true;
        el.append(empty("Nothing was written down yet."));
      }
    } catch (err) {
      if (!page.signal.aborted) el.append(problem(err, load));
    }
  };
  older.addEventListener("click", load);
  el.ready = load();
  return el;
}

const states = {
  applied: "It was applied.", refused: "It was refused: nothing changed.", unknown: "Nothing is known of it: it was not applied, and may still arrive.",
  expired: "It is older than the window in which tokens are remembered.", settled: "It is settled: it was not applied, and never will be.",
};

function tokens(page, ns, key) {
  const id = h("input", { name: "token", autocomplete: "off", spellcheck: "false", required: true, placeholder: "its Idempotency-Key" });
  const body = h("div", { role: "status" });
  const form = h("form", { class: "bar-form small" }, h("label", { class: "field grow" }, "Token ", id), h("button", { type: "submit" }, "Look up"));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    try {
      const fate = await get(api(ns, `tokens/${encode(id.value)}${query({ key })}`), { signal: page.signal });
      body.replaceChildren(h("p", {}, h("strong", {}, states[fate.state] ?? fate.state)),
        fate.result ? h("p", { class: "sub" }, `${Number(fate.result.applied) >= 0 ? "+" : ""}${num(fate.result.applied)}${fate.result.value === undefined ? "" : `, which made it ${num(fate.result.value)}`}${fate.at ? `, ${time(fate.at)}` : ""}`) : "");
    } catch (err) {
      body.replaceChildren(h("p", { class: "problem" }, sentence(err.message)));
    }
  });
  return panel("What became of a write", form, body);
}

// reasons says which policy and which definition hold for a counter, and why.
function reasons(why, defined) {
  const place = (p) => `${p.source === "api" ? "made here or through the API" : "from the file of the server"}, number ${p.index + 1}`;
  const el = panel("Why it counts as it does",
    h("h3", {}, "Policy"),
    why.holds ? h("p", {}, "It matches ", mono(why.holds.policy.pattern), `, the first policy that does: ${place(why.holds)}.`) : h("p", {}, "No policy matches it, so the defaults hold."),
    h("pre", { class: "code" }, policyText(why.effective)),
    why.others.length > 0 && h("p", { class: "sub" }, `${plural(why.others.length, "other policy", "other policies")} would match, and came later: ${why.others.map((o) => o.policy.pattern).join(", ")}.`),
    h("h3", {}, "Definition"),
    defined ? h("p", {}, "It matches ", mono(defined.pattern), why.definition.in_force ? `, in force since ${time(why.definition.in_force)} (book ${why.definition.id}).` : ".") : h("p", {}, "No definition matches it: only its total is counted."),
    defined && h("pre", { class: "code" }, definitionText(defined)),
    h("p", { class: "sub" }, h("a", { href: "#/policies" }, "See all policies and definitions")));
  return el;
}
