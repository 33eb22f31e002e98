// Who is logged in. The key is exchanged for a cookie that no script can read, so this
// page knows the name and the grants of its user, and never the key. All tabs of a
// browser share the cookie, and tell each other when it changes.

let identity; // as GET /api/v1/session tells it; undefined if nobody is known
let waiting;  // while a login is asked for: {promise, done}

const tabs = new BroadcastChannel("quipu");
const url = "api/v1/session";

export const who = () => identity;
// csrf returns what changes have to show, if there is a login.
export const csrf = () => identity?.csrf;
export const loggedIn = () => Boolean(identity?.csrf);

function know(next) {
  const was = identity;
  identity = next;
  window.dispatchEvent(new CustomEvent("quipu-session", { detail: { was, now: next } }));
}

async function ask(method, json) {
  const headers = { "Content-Type": "application/json" };
  if (csrf()) headers["X-Csrf-Token"] = csrf();
  const res = await fetch(url, { method, headers, body: json && JSON.stringify(json), credentials: "same-origin", cache: "no-store" });
  const reply = await res.json().catch(() => ({}));
  return { status: res.status, ok: res.ok, reply };
}

// renew asks the server who this browser is, and returns whether it knows. It throws if
// the server can't be reached.
export async function renew() {
  const { status, ok, reply } = await ask("GET");
  if (ok) {
    know(reply);
    waiting?.done();
  } else if (status === 401) know(undefined);
  return ok;
}

// needed is called when a call was refused for want of a login. It returns when there is
// one: then the call is made again, and the page goes on where it was. It throws when the
// user goes on without, or the page is left.
export function needed(signal) {
  if (!waiting) {
    waiting = {};
    waiting.promise = new Promise((done, refuse) => {
      Object.assign(waiting, { done, refuse });
    });
    waiting.promise.catch(() => {}).finally(() => { waiting = undefined; });
    window.dispatchEvent(new CustomEvent("quipu-login", { detail: { had: identity } }));
  }
  const left = new Promise((_, fail) => signal?.addEventListener("abort", () => fail(new DOMException("The page was left", "AbortError")), { once: true }));
  return Promise.race([waiting.promise, left]);
}

// refuse has calls that wait for a login go without.
export const refuse = () => waiting?.refuse(Object.assign(new Error("log in with a key that may do this"), { status: 401, title: "API key needed" }));

// login exchanges a key for a cookie, and returns what is wrong in words, or "".
export async function login(key) {
  try {
    const { status, ok, reply } = await ask("POST", { key });
    if (status === 401) return "The server did not accept this key.";
    if (!ok) return reply.detail ?? `The server replied ${status}.`;
    const kept = await ask("GET");
    if (!kept.reply.csrf && !kept.reply.open) {
      return "The key is right, but the login was not kept. Either this browser takes no cookies from this server, or several servers are behind this address: then each browser has to stay with one of them.";
    }
    know(kept.reply);
    waiting?.done();
    tabs.postMessage("in");
    return "";
  } catch {
    return "The server can't be reached: it may be restarting, or the network is down.";
  }
}

// logout ends the login, on the server and so in all tabs.
export async function logout() {
  let { status, ok, reply } = await ask("DELETE");
  if (status === 403 && (await renew())) ({ status, ok, reply } = await ask("DELETE")); // another tab had logged in
  if (!ok && status !== 401) throw new Error(reply.detail ?? `the server replied ${status}`);
  ended();
  tabs.postMessage("out");
}

// ended forgets who the user was, and has the page forget what that one has seen.
function ended() {
  know(undefined);
  window.dispatchEvent(new CustomEvent("quipu-logout"));
}

tabs.addEventListener("message", ({ data }) => {
  if (data === "out") ended();
  else renew().catch(() => {}); // the next call finds out
});

// may reports whether the user is granted something: read, write, decide or admin. Of a
// key; if that is null of some key; if none is named of all keys of a namespace; and of all
// namespaces if none is named either. The server judges, and this only says so beforehand.
export function may(grant, ns, key) {
  if (!identity || identity.open) return true;
  return identity.grants.some((text) => {
    const colon = text.indexOf(":"), words = text.slice(0, colon).split("+"), where = text.slice(colon + 1);
    const slash = where.indexOf("/"), space = slash < 0 ? where : where.slice(0, slash), prefix = slash < 0 ? "" : where.slice(slash + 1, -1);
    if (!words.includes(grant) && !words.includes("all")) return false;
    if (space !== "*" && space !== ns) return false;
    return prefix === "" || key === null || (key !== undefined && key.startsWith(prefix));
  });
}
