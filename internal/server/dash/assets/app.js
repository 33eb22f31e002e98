// The frame of the page: which page is shown, the theme, the login, and the live stream.

import { byID, note, problem, text } from "./dom.js";
import { live } from "./api.js";
import { readOnly } from "./actions.js";
import { loggedIn, login, logout, needed, refuse, renew, who } from "./session.js";
import { overview } from "./overview.js";
import { counters } from "./counters.js";
import { counter } from "./counter.js";
import { policies } from "./policies.js";
import { decided } from "./decided.js";
import { operations } from "./operations.js";

const pages = [
  { path: /^\/$/, title: "Overview", view: overview, nav: "#/" },
  { path: /^\/counters$/, title: "Counters", view: counters, nav: "#/counters" },
  { path: /^\/counter\/([^/]*)\/([^/]*)$/, title: "Counter", view: counter, nav: "#/counters" },
  { path: /^\/policies$/, title: "Policies", view: policies, nav: "#/policies" },
  { path: /^\/decided$/, title: "Limits & stock", view: decided, nav: "#/decided" },
  { path: /^\/operations$/, title: "Operations", view: operations, nav: "#/operations" },
];

let shown = new AbortController();

// show shows the page that the address names. What the page before has under way ends.
async function show() {
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  const [path, search = ""] = (location.hash.slice(1) || "/").split("?");
  const page = pages.find((p) => p.path.test(path));
  const main = byID("main");
  const args = page && parts(page.path.exec(path));
  if (!args) {
    location.replace("#/");
    return;
  }
  for (const a of document.querySelectorAll("#nav a")) {
    if (a.getAttribute("href") === page.nav) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = `${args[1] ?? page.title} – Quipu`;
  main.dataset.page = page.title;
  state("connecting");
  const context = {
    args, signal, query: new URLSearchParams(search),
    // stream opens the live stream of the page: there is one of each.
    stream: (to, handlers) => live(to, {
      ...handlers,
      overview(o) {
        if (o.server.read_only) readOnly();
        handlers.overview?.(o);
      },
    }, state, signal),
  };
  main.replaceChildren();
  window.scrollTo(0, 0);
  if (!who()) await renew().then((known) => known || needed(signal)).catch(() => {}); // calls say what is wrong
  if (signal.aborted) return;
  try {
    await page.view(main, context);
  } catch (err) {
    if (!signal.aborted) main.replaceChildren(problem(err, show));
  }
}

// parts returns what an address names, or undefined if it is not encoded as addresses are.
function parts(match) {
  try {
    return match.slice(1).map(decodeURIComponent);
  } catch {
    return undefined;
  }
}

const words = { connecting: "Connecting", live: "Live", lost: "Reconnecting", paused: "Paused", denied: "Not live", locked: "Locked" };

function state(name) {
  byID("live").dataset.state = name;
  text(byID("live-text"), words[name]);
}

// The theme is that of the system, or one of two that is chosen.
const themes = ["auto", "light", "dark"];
const themeNow = () => document.documentElement.dataset.theme ?? "auto";

function theme(next) {
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("quipu.theme", next);
  } catch {
    // It holds until the page is left.
  }
  const button = byID("theme");
  text(button, { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[next]);
  button.setAttribute("aria-label", `Theme: ${next}. Change it`);
}

byID("theme").addEventListener("click", () => theme(themes[(themes.indexOf(themeNow()) + 1) % themes.length]));

// The login asks for a key when a call was refused for want of one. The page behind it
// stays as it is, and goes on when there is one.
const dialog = byID("login");
window.addEventListener("quipu-login", ({ detail: { had } }) => {
  if (dialog.open) return;
  state("locked");
  text(byID("login-why"), had?.csrf ? "Your login has ended: the key was revoked or has expired, or the server was restarted. The page stays as it is." : "This server asks for an API key.");
  text(byID("login-problem"), "");
  byID("login-without").hidden = !without();
  dialog.showModal();
  byID("login-key").focus();
});
// Whoever may do something without a login may go on without one.
const without = () => Boolean(who());
dialog.addEventListener("cancel", (e) => {
  if (without()) refuse();
  else e.preventDefault();
});
byID("login-without").addEventListener("click", () => {
  refuse();
  dialog.close();
});
byID("login-plain").hidden = window.isSecureContext;
byID("login-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  const input = byID("login-key"), send = byID("login-send");
  const key = input.value.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    text(byID("login-problem"), "A key is printable ASCII without spaces.");
    return;
  }
  send.disabled = true;
  const wrong = await login(key);
  send.disabled = false;
  text(byID("login-problem"), wrong);
  if (wrong) input.select();
});
byID("logout").addEventListener("click", async () => {
  if (!loggedIn()) {
    needed().catch(() => {});
    return;
  }
  try {
    await logout();
  } catch (err) {
    note(`You are still logged in: ${err.message}.`, true);
  }
});
window.addEventListener("quipu-logout", show);

// What a user who was known before sees, another one does not.
let last;
window.addEventListener("quipu-session", ({ detail: { now } }) => {
  byID("logout").hidden = !now || now.open;
  text(byID("logout"), loggedIn() ? "Log out" : "Log in");
  byID("user").hidden = !loggedIn();
  text(byID("user"), now?.name ?? "");
  byID("logout").title = loggedIn() ? `You are ${now.name}` : "";
  byID("user").title = now ? `Granted: ${now.grants.join(", ")}` : "";
  if (!now) return;
  if (dialog.open && (now.csrf || now.open)) {
    byID("login-key").value = "";
    dialog.close();
    state("connecting");
  }
  const next = JSON.stringify([now.name, now.grants]);
  if (last !== undefined && last !== next) show();
  last = next;
});

document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault(); // the address names the page
  byID("main").focus();
});

theme(themeNow());
window.addEventListener("hashchange", () => {
  show();
  byID("main").focus({ preventScroll: true });
});
show();
