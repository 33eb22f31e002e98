// Operations: what an operator does, and what would wake one.

import { empty, facts, h, mono, panel, problem, sentence, table, text } from "./dom.js";
import { call, get } from "./api.js";
import { may } from "./session.js";
import { num, plural, span, time } from "./format.js";

export async function operations(root, page) {
  const about = facts(["Version", "Started", "Store", "Doors"]);
  root.append(h("h1", {}, "Operations"), alerts(page), h("div", { class: "halves" }, verify(page), backup()),
    panel("This server", about, h("p", { class: "sub" }, h("a", { href: "metrics" }, "Metrics for Prometheus"), " · ", h("a", { href: "openapi.json" }, "The API, as OpenAPI"))));
  page.stream("api/v1/live", {
    overview({ server, doors }) {
      about.set("Version", server.version);
      about.set("Started", time(server.started_at));
      about.set("Store", `${server.store}, ${server.durability}`);
      about.set("Doors", doors.map((d) => `${d.name} ${d.address}`).join(", ") || "–");
    },
  });
}

const order = { firing: 0, pending: 1, quiet: 2 };
const marks = { firing: "▲ Firing", pending: "△ Pending", quiet: "✓ Quiet" };

// alerts shows what the alerts of deploy/alerts.yml say now.
function alerts(page) {
  const sum = h("p", { class: "sub" }, "\u00a0");
  const body = h("div", { class: "alerts" });
  const quiet = h("details", {}, h("summary", {}, "All rules"));
  const el = panel("Alerts", sum, body, quiet);
  const load = async () => {
    try {
      const got = await get("api/v1/alerts", { signal: page.signal });
      const loud = got.alerts.filter((a) => a.state !== "quiet").sort((a, b) => order[a.state] - order[b.state]);
      text(sum, `${loud.length ? plural(loud.length, "alert") : "None"} of ${num(got.rules)} rules of deploy/alerts.yml, by what this server has seen in the last ${span(got.seen_ms)}.`);
      body.replaceChildren(...loud.map((a) => h("article", { class: `alert ${a.state} ${a.severity}` },
        h("h3", {}, h("span", { class: "pill" }, marks[a.state]), ` ${a.name} `, h("span", { class: "ns" }, a.severity)),
        h("p", {}, sentence(a.summary)), h("p", { class: "sub" }, a.description), h("p", {}, h("strong", {}, "What to do: "), a.action))));
      if (!loud.length) body.replaceChildren(empty("✓ No alert fires."));
      quiet.replaceChildren(quiet.firstChild, table("Rules", [{ name: "Rule" }, { name: "State" }, { name: "Severity", wide: true }, { name: "Condition" }],
        got.alerts.map((a) => [a.name, marks[a.state], a.severity, mono(a.expr, "expr")])));
    } catch (err) {
      if (!page.signal.aborted) body.replaceChildren(problem(err, load));
    }
  };
  load();
  const timer = setInterval(() => document.hidden || load(), 15000);
  page.signal.addEventListener("abort", () => clearInterval(timer));
  return el;
}

function verify(page) {
  const body = h("div", { role: "status" });
  const run = h("button", { type: "button", class: "primary" }, "Verify now");
  run.addEventListener("click", async () => {
    run.disabled = true;
    body.replaceChildren(h("p", { class: "sub" }, "Adding up. This may take minutes on a large store; the server goes on serving."));
    try {
      const got = await call("POST", "api/v1/verify", { signal: page.signal });
      body.replaceChildren(
        h("p", { class: got.ok ? "done" : "problem" }, got.ok ? "✓ All sums agree with their record." : `▲ ${plural(got.drift.length, "difference")}.`),
        h("p", { class: "sub" }, `${plural(got.cells, "cell")}, ${plural(got.tokens, "token")}, ${plural(got.deltas, "change")}.`),
        got.drift.length > 0 && table("Differences", [{ name: "What" }, { name: "Served", num: true }, { name: "Recorded", num: true }], got.drift.map((d) => [d.what, d.have, d.want])),
        got.unproved.length > 0 && h("details", {}, h("summary", {}, "What this can't prove"), h("ul", {}, got.unproved.map((u) => h("li", {}, sentence(u))))));
    } catch (err) {
      if (!page.signal.aborted) body.replaceChildren(problem(err));
    }
    run.disabled = false;
  });
  return panel("Verify", h("p", {}, "Checks what is served against an independent record of all writes, and views against totals."), run, body);
}

function backup() {
  const words = h("p", {}, "One file with all namespaces, as of one moment. The server goes on serving; ", mono("quipu restore"), " makes a directory of it.");
  if (!may("admin")) return panel("Backup", words, h("p", { class: "sub" }, "Your key is not granted admin on all namespaces."));
  return panel("Backup", words, h("a", { class: "button primary", href: "api/v1/backup", download: "quipu.tar" }, "Download a backup"));
}
