// Numbers, as people read them.

const integer = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1, minimumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

// num writes a count, also one beyond what a number of JavaScript holds.
export const num = (v) => (v === undefined || v === null ? "–" : integer.format(v));

// short writes a count in little room.
export const short = (v) => (v === undefined || v === null ? "–" : Math.abs(Number(v)) < 10000 ? (Number.isInteger(Number(v)) ? integer : tenth).format(v) : compact.format(v));

// rate writes how many a second.
export function rate(v) {
  if (v === undefined || v === null) return "–";
  return v === 0 ? "0" : v < 10 ? tenth.format(v) : integer.format(v);
}

export function bytes(v) {
  if (v === undefined || v === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (v = Number(v); v >= 1024 && i < units.length - 1; i++) v /= 1024;
  return `${v >= 100 || i === 0 ? integer.format(v) : tenth.format(v)} ${units[i]}`;
}

// ms writes a number of milliseconds.
export function ms(v) {
  if (v === undefined || v === null) return "–";
  if (v < 1) return `${v.toFixed(2)} ms`;
  if (v < 10) return `${v.toFixed(1)} ms`;
  if (v < 1000) return `${integer.format(v)} ms`;
  return span(v);
}

// span writes a length of time, given in milliseconds.
export function span(v) {
  const sec = Math.round(v / 1000);
  if (v < 1000) return `${Math.round(v)} ms`;
  if (sec < 60) return `${sec} s`;
  if (sec < 3600) return `${Math.floor(sec / 60)} min${sec % 60 && sec < 600 ? ` ${sec % 60} s` : ""}`;
  if (sec < 86400) return `${Math.floor(sec / 3600)} h ${Math.floor((sec % 3600) / 60)} min`;
  return `${Math.floor(sec / 86400)} d ${Math.floor((sec % 86400) / 3600)} h`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const time = (t) => full.format(new Date(t));
export const timeOfDay = (t) => clock.format(new Date(t));

// tick writes a moment on an axis of so many milliseconds in all.
export function tick(t, width) {
  const d = new Date(t);
  if (width <= 10 * 60e3) return clock.format(d);
  if (width <= 36 * 3600e3) return minute.format(d);
  return width <= 8 * 86400e3 && (d.getHours() || d.getMinutes()) ? `${day.format(d)} ${minute.format(d)}` : day.format(d);
}

export const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0)}%` : "–");

// plural writes a number of things.
export const plural = (n, one, many = `${one}s`) => `${num(n)} ${Number(n) === 1 ? one : many}`;
