// Elements are made here, and never from text: no string becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(el, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") el.addEventListener(name.slice(2), value);
    else if (name === "value") el.value = value;
    else el.setAttribute(name, value === true ? "" : value);
  }
  el.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false));
  return el;
}

export const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);
export const s = (tag, attrs, ...children) => fill(document.createElementNS(SVG, tag), attrs, children);

export const byID = (id) => document.getElementById(id);

// text sets the text of an element, if it is another.
export function text(el, value) {
  const next = String(value);
  if (el.textContent !== next) el.textContent = next;
}

// panel makes a section with a heading. What tools there are go beside the heading.
export function panel(title, ...children) {
  const tools = h("div", { class: "panel-tools" });
  const el = h("section", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", {}, title), tools), ...children);
  return Object.assign(el, { tools });
}

export const empty = (...children) => h("p", { class: "empty" }, ...children);

// table makes a table that scrolls by itself where it is too wide. Columns are
// {name, num, wide}: wide ones are left out of narrow windows.
export function table(label, columns, rows) {
  const cls = (c) => [c.num && "num", c.wide && "wide"].filter(Boolean).join(" ") || undefined;
  const body = h("tbody");
  const el = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: cls(c) }, c.name)))), body));
  const set = (all) => body.replaceChildren(...all.map((cells) =>
    h("tr", {}, cells.map((cell, i) => h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : undefined, class: cls(columns[i]) }, cell)))));
  if (rows) set(rows);
  return Object.assign(el, { set, body });
}

// facts makes a list of names and values. It returns the list, and set(name, value).
export function facts(names) {
  const of = new Map(names.map((n) => [n, h("dd", {}, "–")]));
  const el = h("dl", { class: "facts" }, names.map((n) => h("div", {}, h("dt", {}, n), of.get(n))));
  return Object.assign(el, {
    set(name, ...value) {
      const dd = of.get(name);
      if (value.length === 1 && typeof value[0] !== "object") text(dd, value[0]);
      else dd.replaceChildren(...value);
    },
  });
}

// note says something in the corner of the page, for a while.
export function note(message, bad) {
  const el = h("div", { class: bad ? "note bad" : "note" }, h("span", {}, message),
    h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => el.remove() }, "×"));
  byID("notes").append(el);
  setTimeout(() => el.remove(), bad ? 12000 : 5000);
}

// problem shows an error of a call, with what to do.
export function problem(err, again) {
  return h("div", { class: "problem-box", role: "alert" },
    h("strong", {}, err.title ?? "Something went wrong"), h("span", {}, sentence(err.message)),
    again && h("button", { type: "button", onclick: again }, "Try again"));
}

export function sentence(text) {
  const t = String(text).trim();
  return t ? t[0].toUpperCase() + t.slice(1) + (/[.!?…]$/.test(t) ? "" : ".") : "";
}

// copyable shows a value in the type of a machine.
export const mono = (value, cls) => h("code", { class: cls }, value);
