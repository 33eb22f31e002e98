// Limits, reservations and reactions: what is decided in the store.

import { empty, h, mono, panel, problem, sentence, table, text } from "./dom.js";
import { action, integer, refusal } from "./actions.js";
import { api, call, encode, get, query } from "./api.js";
import { shares } from "./chart.js";
import { num, percent, plural, rate, span } from "./format.js";
import { namespaceField } from "./counters.js";
import { reservations } from "./counter.js";
import { address } from "./overview.js";
import { may } from "./session.js";

export async function decided(root, page) {
  const ns = page.query.get("ns") ?? "default";
  const pick = h("form", { class: "bar-form" }, namespaceField(ns), h("button", { type: "submit" }, "Show"));
  pick.addEventListener("submit", (e) => {
    e.preventDefault();
    location.hash = `#/decided${query({ ns: pick.elements.ns.value })}`;
  });
  const flow = h("p", { class: "sub" }, "\u00a0");
  const limits = panel("Limits", flow);
  const stock = panel("Reservations");
  const liked = panel("Reactions");
  root.append(h("h1", {}, "Limits, reservations, reactions"), pick, limits, stock, liked);
  page.stream("api/v1/live", {
    overview: ({ rates }) => text(flow, `${rate(rates.limits_allowed)} calls a second allowed, ${rate(rates.limits_refused)} refused, by all limits of this server.`),
  });
  let book;
  try {
    book = await get(api(ns, "definitions"), { signal: page.signal });
  } catch (err) {
    if (!page.signal.aborted) root.append(problem(err, () => location.reload()));
    return;
  }
  showLimits(limits, page, ns, book.definitions.filter((d) => d.limits?.length));
  showStock(stock, page, ns, book.definitions.filter((d) => d.reservations || d.floor !== undefined || d.ceiling !== undefined));
  showLiked(liked, page, ns, book.definitions.filter((d) => d.choices?.length));
}

const define = (what) => ["Give a pattern ", mono(what), " in its ", h("a", { href: "#/policies" }, "definition"), "."];
const algorithms = { bucket: "token bucket", window: "fixed window", sliding: "sliding window", calendar: "calendar" };

function showLimits(el, page, ns, defs) {
  if (!defs.length) {
    el.append(empty(`The namespace ${ns} has no limits. `, ...define("limits")));
    return;
  }
  el.append(table("Limits", [{ name: "Pattern" }, { name: "Limit" }, { name: "Algorithm", wide: true }, { name: "Rate", num: true }, { name: "Burst", num: true, wide: true }],
    defs.flatMap((d) => d.limits.map((l) => [mono(d.pattern), l.name ?? "–", algorithms[l.algorithm ?? "bucket"], `${num(l.rate)} per ${l.per}`, l.burst ? num(l.burst) : "–"]))));
  const body = h("div", { role: "status" });
  const client = (values) => api(ns, `limits/${encode(values.name)}/clients/${encode(values.who)}`);
  const show = (d, values) => {
    const words = `${num(d.remaining)} of ${num(d.limit)} left`;
    body.replaceChildren(h("p", {}, h("strong", {}, words), d.policy ? ` by ${d.policy}` : "", d.reset_after_ms ? `; all of it again in ${span(d.reset_after_ms)}` : "", d.source === "store" ? "" : ` (decided without the store: ${d.source})`),
      h("meter", { min: "0", max: String(d.limit), value: String(d.remaining), "aria-label": "Left" }),
      h("p", {}, h("button", { type: "button", disabled: !may("admin", ns, values.name), title: may("admin", ns, values.name) ? undefined : "This needs admin",
        onclick: async () => {
          try {
            await call("DELETE", client(values));
            show(await get(client(values), { signal: page.signal }), values);
          } catch (err) {
            body.replaceChildren(refusal(err));
          }
        } }, `Forget what ${values.who || "this client"} has used`)));
  };
  const form = action({
    title: "Try a limit", grant: may("decide", ns, null) ? "decide" : "read", ns, key: null, reads: true,
    fields: [
      { name: "name", label: "Counter", hint: defs[0].pattern.replace("*", "…") }, { name: "who", label: "Client", hint: "who calls", optional: true },
      { name: "cost", label: "Cost", value: "1", number: true, short: true },
    ],
    buttons: [{ name: "look", label: "What is left?" }, ...(may("decide", ns, null) ? [{ name: "allow", label: "Use it", primary: true }] : [])],
    async run(values, button, token) {
      body.replaceChildren();
      if (button === "look") {
        show(await get(client(values), { signal: page.signal }), values);
        return "This used nothing.";
      }
      const d = await call("POST", api(ns, `limits/${encode(values.name)}/allow`), { json: { who: values.who, cost: integer(values.cost) }, headers: { "Idempotency-Key": token } });
      show(d, values);
      return d.allowed ? `Allowed: ${num(values.cost)} used.` : `Refused: nothing was used${d.retry_after_ms ? `. There is enough again in ${span(d.retry_after_ms)}` : ""}.`;
    },
  });
  el.append(form, body);
}

function showStock(el, page, ns, defs) {
  if (defs.length) {
    el.append(table("Counters with bounds", [{ name: "Pattern" }, { name: "Floor", num: true }, { name: "Ceiling", num: true }, { name: "Reservations" }],
      defs.map((d) => [mono(d.pattern), num(d.floor), num(d.ceiling), d.reservations ? Object.entries(d.reservations).map(([n, v]) => `${n.replaceAll("_", "-")} ${v}`).join(", ") || "yes" : "–"])));
  } else el.append(h("p", { class: "sub" }, `No definition of ${ns} has bounds. Any counter takes reservations all the same.`));
  el.append(keyed("Reservations of ", (key, body) => body.replaceChildren(reservations(page, ns, key))));
}

function showLiked(el, page, ns, defs) {
  if (!defs.length) {
    el.append(empty(`No counter of ${ns} takes reactions. `, ...define("choices")));
    return;
  }
  el.append(table("Choices", [{ name: "Pattern" }, { name: "Choices" }], defs.map((d) => [mono(d.pattern), d.choices.join(", ")])));
  el.append(keyed("Reactions to ", async (key, body) => {
    try {
      const got = await get(api(ns, `reactions/${encode(key)}`), { signal: page.signal });
      body.replaceChildren(shares(Object.entries(got.counts).map(([name, count]) => ({ name, count })), num, percent),
        h("p", { class: "sub" }, `${plural(got.users, "user")} in all. `, h("a", { href: address(ns, key) }, `Open ${key}`)));
    } catch (err) {
      body.replaceChildren(h("p", { class: "problem" }, sentence(err.message)));
    }
  }));
}

// keyed makes a form for a key, and a place for what is found.
function keyed(words, show) {
  const input = h("input", { name: "key", required: true, autocomplete: "off", spellcheck: "false" });
  const body = h("div", {});
  const form = h("form", { class: "bar-form small" }, h("label", { class: "field grow" }, words, input), h("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    show(input.value, body);
  });
  return h("div", {}, form, body);
}
