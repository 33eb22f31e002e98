// The counters of a namespace, by the beginning of their keys.

import { empty, h, panel, problem, table, text } from "./dom.js";
import { api, get, query } from "./api.js";
import { num, plural } from "./format.js";
import { address, link } from "./overview.js";

const PAGE = 50;

// namespaceField makes the field for a namespace, which every page names alike.
export function namespaceField(value) {
  return h("label", { class: "field" }, "Namespace ", h("input", { name: "ns", value, autocomplete: "off", spellcheck: "false", required: true, size: "14" }));
}

export async function counters(root, page) {
  const ns = page.query.get("ns") ?? "default";
  const prefix = page.query.get("prefix") ?? "";
  const form = h("form", { class: "bar-form", role: "search" },
    namespaceField(ns),
    h("label", { class: "field grow" }, "Keys that begin with ", h("input", { name: "prefix", value: prefix, autocomplete: "off", spellcheck: "false", placeholder: "any", "aria-label": "Keys that begin with" })),
    h("button", { type: "submit", class: "primary" }, "List"),
    h("button", { type: "button", onclick: (e) => open(e.target.form) }, "Open this key"));
  const open = (f) => f.elements.prefix.value && (location.hash = address(f.elements.ns.value || "default", f.elements.prefix.value));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    location.hash = `#/counters${query({ ns: form.elements.ns.value, prefix: form.elements.prefix.value })}`;
  });
  const sub = h("p", { class: "sub" }, "\u00a0");
  const rows = table("Counters", [{ name: "Counter" }, { name: "Value", num: true }, { name: "Shards", num: true, wide: true }, { name: "Version", num: true, wide: true }]);
  const more = h("button", { type: "button", hidden: true }, "More");
  const list = panel(prefix ? `Counters of ${prefix}…` : "Counters", rows, more);
  root.append(h("h1", {}, "Counters"), sub, form, list);
  text(sub, "In the byte order of their keys. A list asks the store for each page.");

  let all = [], cursor;
  const load = async () => {
    more.disabled = true;
    try {
      const found = await get(api(ns, `counters${query({ prefix, limit: PAGE, cursor })}`), { signal: page.signal });
      all = all.concat(found.counters);
      cursor = found.next;
      rows.set(all.map((c) => [link(ns, c.key), num(c.value), num(c.shards), c.version === undefined ? "–" : String(c.version)]));
      more.hidden = !cursor;
      list.querySelector(".empty")?.remove();
      if (!all.length) {
        rows.hidden = true;
        list.append(prefix ? empty(`No counter of ${ns} begins with “${prefix}”.`) : empty(`There is no counter in ${ns} yet. The first write to a key creates it.`));
      }
    } catch (err) {
      if (!page.signal.aborted) list.replaceChildren(problem(err, () => { location.reload(); }));
    }
    more.disabled = false;
  };
  more.addEventListener("click", load);
  page.stream("api/v1/live", { overview() {} });
  await load();
  if (all.length) text(sub, `${plural(all.length, "counter")}${cursor ? " so far" : ""} of ${ns}, in the byte order of their keys.`);
}
