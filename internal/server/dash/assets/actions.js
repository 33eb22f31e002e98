// Forms that change something. Each press is one write with a token of its own: if nobody
// knows whether it counted, the next press repeats it, and it counts once.

import { h, mono, problem } from "./dom.js";
import { loggedIn, may } from "./session.js";

const hex = (n) => [...crypto.getRandomValues(new Uint8Array(n))].map((b) => b.toString(16).padStart(2, "0")).join("");

// A number that JavaScript may not hold is sent as it was typed.
export const integer = (text) => BigInt(text);

// unsure reports whether a call may have counted although it failed. An error without a
// kind is from a proxy.
const unsure = (err) => err.kind === "network" || err.kind === "unknown" || (err.status >= 500 && !err.kind);

const lacks = (grant, key) => `${loggedIn() ? "Your key is" : "Without a key you are"} not granted ${grant} on ${key === null ? "any key of this namespace" : "this key"}.`;

// refusal is what the API says of an error, with its kind for programs.
export function refusal(err) {
  const el = problem(err);
  if (err.kind) el.append(mono(err.kind, "kind"));
  return el;
}

// action makes a form. Its fields are {name, label, value, hint, number, optional, short},
// its buttons {name, label, primary}. run(values, button, token) makes the call and returns
// what to say. It is disabled for whoever is not granted it, which the server would refuse.
export function action({ title, grant, ns, key, fields, buttons, run, reads }) {
  const inputs = fields.map((f) => h("input", {
    name: f.name, value: f.value ?? "", placeholder: f.hint, required: !f.optional, autocomplete: "off", spellcheck: "false",
    inputmode: f.number ? "numeric" : undefined, pattern: f.number ? "-?[0-9]{1,19}" : undefined, title: f.number ? "A whole number" : undefined, class: f.short && "short",
  }));
  const said = h("div", { class: "said", role: "status" });
  const why = h("p", { class: "sub why" });
  const set = h("fieldset", {}, h("legend", { class: "hidden" }, title), h("div", { class: "bar-form small" },
    fields.map((f, i) => h("label", { class: "field" }, `${f.label} `, inputs[i])),
    h("span", { class: "buttons" }, buttons.map((b) => h("button", { type: "submit", value: b.name, class: b.primary && "primary" }, b.label)))));
  const form = h("form", { class: "action", "aria-label": title, "data-reads": reads }, set, why, said);
  const granted = may(grant, ns, key);
  set.disabled = !granted;
  why.hidden = granted;
  if (!granted) why.append(lacks(grant, key));
  let open; // the write that nobody knows of: {text, token}
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const values = Object.fromEntries(inputs.map((i) => [i.name, i.value.trim()]));
    const button = e.submitter?.value ?? buttons[0].name;
    const text = JSON.stringify([values, button]);
    const token = open?.text === text ? open.token : `page-${hex(12)}`;
    inputs.forEach((i) => i.removeAttribute("aria-invalid"));
    set.disabled = true;
    try {
      const words = await run(values, button, token);
      open = undefined;
      said.replaceChildren(h("p", { class: "done" }, `✓ ${words}`));
    } catch (err) {
      if (err.name === "AbortError") return;
      open = unsure(err) ? { text, token } : undefined;
      said.replaceChildren(refusal(err));
      if (open) said.append(h("p", { class: "sub" }, "It may have counted. Press again: it counts once."));
      inputs.find((i) => i.name === err.field)?.setAttribute("aria-invalid", "true");
    } finally {
      set.disabled = !granted || form.dataset.readOnly !== undefined;
      if (!set.disabled) (e.submitter ?? inputs[0])?.focus({ preventScroll: true });
    }
  });
  return form;
}

// readOnly disables what changes something, on a server that takes no writes.
export function readOnly() {
  for (const form of document.querySelectorAll("form.action:not([data-read-only], [data-reads])")) {
    form.dataset.readOnly = "";
    form.querySelector("fieldset").disabled = true;
    form.querySelector(".why").replaceChildren("This server is read-only.");
    form.querySelector(".why").hidden = false;
  }
}
