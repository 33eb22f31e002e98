// The frame of the page: which page is shown, the theme, the login, and the live stream.

import { byID, problem, text } from "./dom.js";
import { get, live, loggedIn, login, logout } from "./api.js";
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
  if (!page) {
    location.replace("#/");
    return;
  }
  for (const a of document.querySelectorAll("#nav a")) {
    if (a.getAttribute("href") === page.nav) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  const args = page.path.exec(path).slice(1).map(decodeURIComponent);
  document.title = `${args[1] ?? page.title} – Quipu`;
  main.dataset.page = page.title;
  state("connecting");
  const context = {
    args, signal, query: new URLSearchParams(search),
    // stream opens the live stream of the page: there is one of each.
    stream: (to, handlers) => live(to, handlers, state, signal),
  };
  main.replaceChildren();
  window.scrollTo(0, 0);
  try {
    await page.view(main, context);
  } catch (err) {
    if (!signal.aborted && err.status !== 401) main.replaceChildren(problem(err, show));
  }
}

const words = { connecting: "Connecting", live: "Live", lost: "Reconnecting", paused: "Paused", denied: "Locked" };

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

// The login asks for a key when a call was refused for want of one.
const dialog = byID("login");
window.addEventListener("quipu-login", ({ detail: had }) => {
  if (dialog.open) return;
  if (had) logout();
  text(byID("login-problem"), had ? "The server did not accept this key." : "");
  byID("logout").hidden = true;
  dialog.showModal();
  byID("login-key").focus();
});
dialog.addEventListener("cancel", (e) => e.preventDefault());
byID("login-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  const input = byID("login-key");
  const key = input.value.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    text(byID("login-problem"), "A key is printable ASCII without spaces.");
    return;
  }
  login(key);
  try {
    await get("api/v1/overview");
  } catch (err) {
    if (err.status === 401) {
      logout();
      text(byID("login-problem"), "The server did not accept this key.");
      input.select();
      return;
    }
  }
  input.value = "";
  dialog.close();
  byID("logout").hidden = false;
  show();
});
byID("logout").addEventListener("click", () => {
  logout();
  byID("logout").hidden = true;
  show();
});
byID("logout").hidden = !loggedIn();

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
