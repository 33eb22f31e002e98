// Policies and definitions: what there is, what holds for a key, and changing them.

import { empty, h, mono, panel, problem, sentence, table, text } from "./dom.js";
import { api, call, get, query } from "./api.js";
import { plural, time } from "./format.js";
import { address } from "./overview.js";
import { namespaceField } from "./counters.js";

// policyText and definitionText write them as a file has them.
export const policyText = (p) => Object.entries(p).filter(([, v]) => v !== "" && v !== "0s").map(([name, v]) => `${name.replaceAll("_", "-")}: ${v}`).join("\n");

export function definitionText(d) {
  const flow = (v) => (Array.isArray(v) ? `[${v.map(flow).join(", ")}]` : v && typeof v === "object" ? `{${Object.entries(v).map(([n, x]) => `${n}: ${flow(x)}`).join(", ")}}` : String(v));
  return Object.entries(d).map(([name, v]) => `${name}: ${flow(v)}`).join("\n");
}

const settings = (p) => Object.entries(p).filter(([n]) => n !== "pattern" && n !== "namespace").map(([n, v]) => `${n.replaceAll("_", "-")}: ${v}`).join(", ") || "the defaults";

export async function policies(root, page) {
  const ns = page.query.get("ns") ?? "default";
  const pick = h("form", { class: "bar-form" }, namespaceField(ns), h("button", { type: "submit" }, "Show"));
  pick.addEventListener("submit", (e) => {
    e.preventDefault();
    location.hash = `#/policies${query({ ns: pick.elements.ns.value })}`;
  });
  const rows = table("Policies", [{ name: "#", num: true }, { name: "Pattern" }, { name: "Namespace" }, { name: "Settings" }, { name: "Made", wide: true }]);
  const none = empty("There are no policies: every counter has the defaults, which are exact reads and writes that survive power loss.");
  const defs = h("div", {});
  const policyEditor = editor("policies", "Edit the policies made here", '[\n  {"pattern": "likes:*", "preset": "likes"}\n]');
  const definitionEditor = editor("definitions", "Edit the definitions", '[\n  {"pattern": "views:*", "windows": [{"every": "1h", "keep": "90d"}], "dimensions": ["country"]}\n]');
  const policyPanel = panel("Policies", h("p", { class: "sub" }, "A policy says how durable a counter is, how it is laid out, and how old a read may be. The first that matches a key holds; those made here come before those of the file."), rows, none, policyEditor);
  const definitionPanel = panel("Definitions", h("p", { class: "sub" }, `A definition says what is counted besides the total. These are of the namespace ${ns}; all servers share them.`), pick, defs, definitionEditor);
  root.append(h("h1", {}, "Policies and definitions"), explainer(page, ns), policyPanel, definitionPanel);
  page.stream("api/v1/live", { overview() {} });

  const loadPolicies = async () => {
    const got = await get("api/v1/policies", { signal: page.signal });
    rows.set(got.policies.map((p) => [String(p.index + 1), mono(p.policy.pattern), p.policy.namespace ?? "any", settings(p.policy), p.source === "api" ? "here" : "in the file"]));
    rows.hidden = got.policies.length === 0;
    none.hidden = !rows.hidden;
    policyEditor.load(got.policies.filter((p) => p.source === "api").map((p) => p.policy), got.etag);
  };
  const loadDefinitions = async () => {
    const got = await get(api(ns, "definitions"), { signal: page.signal });
    defs.replaceChildren(got.definitions.length
      ? h("div", { class: "cards" }, got.definitions.map((d) => h("article", { class: "card" }, h("h3", {}, mono(d.pattern)), h("pre", { class: "code" }, definitionText(without(d, "pattern"))))))
      : empty(`The namespace ${ns} has no definitions: only totals are counted.`));
    if (got.in_force) defs.append(h("p", { class: "sub" }, `Book ${got.id}, in force since ${time(got.in_force)}.`));
    definitionEditor.load(got.definitions, got.etag);
  };
  policyEditor.use({
    preview: async (body, etag, had) => policyChanges(had, (await call("PUT", "api/v1/policies?dry_run=true", { body, headers: { "If-Match": etag } })).policies.filter((p) => p.source === "api").map((p) => p.policy)),
    apply: async (body, etag) => {
      await call("PUT", "api/v1/policies", { body, headers: { "If-Match": etag } });
      await loadPolicies();
    },
  });
  definitionEditor.use({
    preview: async (body, etag) => (await call("PUT", api(ns, "definitions?dry_run=true"), { body, headers: { "If-Match": etag } })).changes,
    apply: async (body, etag) => {
      await call("PUT", api(ns, "definitions"), { body, headers: { "If-Match": etag } });
      await loadDefinitions();
    },
  });
  const failed = (into) => (err) => {
    if (!page.signal.aborted) into.append(problem(err, () => location.reload()));
  };
  await Promise.all([loadPolicies().catch(failed(policyPanel)), loadDefinitions().catch(failed(definitionPanel))]);
}

const without = (o, name) => Object.fromEntries(Object.entries(o).filter(([n]) => n !== name));

// policyChanges says what becomes of policies.
function policyChanges(had, next) {
  const id = (p) => `${p.pattern}${p.namespace ? ` of ${p.namespace}` : ""}`;
  const old = new Map(had.map((p) => [id(p), p])), now = new Map(next.map((p) => [id(p), p]));
  const changes = [];
  for (const [name, p] of now) {
    const was = old.get(name);
    if (!was) changes.push(`${name}: begins, with ${settings(p)}`);
    else if (settings(was) !== settings(p)) changes.push(`${name}: ${settings(was)} becomes ${settings(p)}`);
  }
  for (const name of old.keys()) if (!now.has(name)) changes.push(`${name}: ends`);
  const kept = (of, other) => [...of.keys()].filter((n) => other.has(n)).join("\n");
  if (kept(old, now) !== kept(now, old)) changes.push("the order changes: the first that matches a key holds");
  return changes;
}

// explainer asks which policy and definition a key has.
function explainer(page, ns) {
  const form = h("form", { class: "bar-form" }, namespaceField(ns), h("label", { class: "field grow" }, "Key ", h("input", { name: "key", autocomplete: "off", spellcheck: "false", required: true, placeholder: "views:42" })), h("button", { type: "submit", class: "primary" }, "Explain"));
  const body = h("div", { role: "status" });
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const of = form.elements.ns.value, key = form.elements.key.value;
    try {
      const why = await get(api(of, `policies/explain${query({ key })}`), { signal: page.signal });
      const d = why.definition?.definitions?.[0];
      body.replaceChildren(h("div", { class: "halves" },
        h("div", {}, h("p", {}, why.holds ? ["Its policy is ", mono(why.holds.policy.pattern), ", the first that matches."] : "No policy matches: the defaults hold."), h("pre", { class: "code" }, policyText(why.effective))),
        h("div", {}, h("p", {}, d ? ["Its definition is ", mono(d.pattern), "."] : "No definition matches: only its total is counted."), d && h("pre", { class: "code" }, definitionText(d)))),
      h("p", {}, h("a", { href: address(of, key) }, `Open ${key}`)));
    } catch (err) {
      body.replaceChildren(h("p", { class: "problem" }, sentence(err.message)));
    }
  });
  return panel("What holds for a key", form, body);
}

// editor makes a place to change a list. What is applied was seen as a preview first.
function editor(name, title, example) {
  const area = h("textarea", { rows: "8", spellcheck: "false", autocomplete: "off", "aria-label": title, "aria-describedby": `${name}-wrong` });
  const wrong = h("p", { class: "problem", role: "alert", id: `${name}-wrong` });
  const changes = h("div", { role: "status" });
  const preview = h("button", { type: "submit" }, "Preview");
  const apply = h("button", { type: "button", class: "primary", disabled: true }, "Apply");
  const reset = h("button", { type: "button" }, "Undo my edits");
  const form = h("form", { class: "editor" }, area, wrong, changes, h("div", { class: "buttons" }, preview, apply, reset));
  const el = h("details", {}, h("summary", {}, title), form);
  let had = [], etag, does, was = "";
  const prefix = `{"${name}":`;
  const body = () => `${prefix}${area.value}}`;
  const unseen = () => {
    apply.disabled = true;
    text(wrong, "");
    changes.replaceChildren();
  };
  const refuse = (err) => {
    if (err.status === 412) text(wrong, "Somebody else has changed them meanwhile. Copy your text, reload the page, and try again.");
    else text(wrong, sentence(err.message.replace(/ at byte \d+/, "")) + where(err));
    area.setAttribute("aria-invalid", "true");
  };
  // where puts the cursor where the text is wrong, and says which line that is.
  const where = (err) => {
    if (err.offset === undefined) return "";
    const bytes = new TextEncoder().encode(area.value);
    const at = new TextDecoder().decode(bytes.slice(0, Math.max(0, err.offset - prefix.length))).length;
    area.focus();
    area.setSelectionRange(at, Math.min(at + 1, area.value.length));
    return ` (Line ${area.value.slice(0, at).split("\n").length}.)`;
  };
  const parse = () => {
    try {
      return Array.isArray(JSON.parse(area.value)) || "This is not a list: it begins with [ and ends with ].";
    } catch (err) {
      return `This is not JSON: ${err.message}.`;
    }
  };
  area.addEventListener("input", () => {
    area.removeAttribute("aria-invalid");
    unseen();
  });
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    unseen();
    const ok = parse();
    if (ok !== true) {
      text(wrong, ok);
      area.setAttribute("aria-invalid", "true");
      return;
    }
    try {
      const found = await does.preview(body(), etag, had);
      changes.replaceChildren(found.length
        ? h("div", { class: "preview" }, h("strong", {}, `${plural(found.length, "change")}, if you apply this:`), h("ul", {}, found.map((c) => h("li", {}, c))))
        : h("p", { class: "sub" }, "This changes nothing."));
      apply.disabled = found.length === 0;
    } catch (err) {
      refuse(err);
    }
  });
  apply.addEventListener("click", async () => {
    apply.disabled = true;
    try {
      await does.apply(body(), etag);
      changes.replaceChildren(h("p", { class: "done" }, "✓ Applied."));
    } catch (err) {
      refuse(err);
    }
  });
  reset.addEventListener("click", () => {
    area.value = was;
    area.removeAttribute("aria-invalid");
    unseen();
  });
  return Object.assign(el, {
    load(list, tag) {
      had = list;
      etag = tag;
      area.value = list.length ? `[\n${list.map((o) => `  ${JSON.stringify(o)}`).join(",\n")}\n]` : "[]";
      if (!list.length) area.setAttribute("placeholder", example);
      was = area.value;
    },
    use(what) {
      does = what;
    },
  });
}
