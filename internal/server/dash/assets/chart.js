// Charts, drawn as SVG. They are as wide as their place, and say in words what they
// show.

import { h, s, text } from "./dom.js";

// spark makes a small line of the last values, for beside a number.
export function spark(n, label) {
  const line = s("polyline", { class: "spark-line", fill: "none", "vector-effect": "non-scaling-stroke" });
  const area = s("polygon", { class: "spark-area" });
  const el = s("svg", { class: "spark", viewBox: `0 0 ${n - 1} 20`, preserveAspectRatio: "none", role: "img", "aria-label": label }, area, line);
  return Object.assign(el, {
    set(values) {
      const v = values.slice(-n);
      const most = Math.max(...v, 1e-9);
      const from = n - v.length;
      const points = v.map((y, i) => `${from + i},${(19 - 18 * (y / most)).toFixed(2)}`);
      line.setAttribute("points", points.join(" "));
      area.setAttribute("points", points.length ? `${from},20 ${points.join(" ")} ${n - 1},20` : "");
    },
  });
}

// ceiling returns a round number that is not less than v, and how far apart the lines
// below it are.
export function ceiling(v) {
  if (!(v > 0)) return { top: 1, step: 0.5 };
  const size = 10 ** Math.floor(Math.log10(v));
  const step = [0.2, 0.25, 0.5, 1, 2, 2.5, 5].map((f) => f * size).find((st) => v / st <= 5) ?? size * 5;
  const whole = v >= 4 ? Math.max(1, Math.round(step)) : step;
  return { top: Math.ceil(v / whole - 1e-9) * whole, step: whole };
}

const LEFT = 48, RIGHT = 8, TOP = 8, BOTTOM = 22;

// frame makes a chart that is drawn again when its width changes. draw(svg, width,
// height) returns where the points are: {count, x(i), words(i)}.
function frame(label, height, draw) {
  const svg = s("svg", { class: "chart-svg", role: "img", "aria-label": label, height: String(height) });
  const tip = h("div", { class: "tip", hidden: true });
  const box = h("div", { class: "chart", tabindex: "0", role: "group", "aria-label": `${label}. Use the arrow keys to read it.` }, svg, tip);
  box.style.height = `${height}px`;
  const said = h("span", { class: "hidden", "aria-live": "polite" });
  box.append(said);
  let at = -1, marks, drawn = 0;
  const cursor = s("line", { class: "cursor", y1: String(TOP), y2: String(height - BOTTOM) });
  const redraw = () => {
    const width = box.clientWidth;
    if (!width) return;
    drawn = width;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", String(width));
    svg.replaceChildren();
    marks = draw(svg, width, height);
    if (at >= 0) point(Math.min(at, marks.count - 1));
  };
  const point = (i, say) => {
    if (!marks || i < 0 || i >= marks.count) return hide();
    at = i;
    const x = marks.x(i);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    svg.append(cursor);
    const words = marks.words(i);
    tip.replaceChildren(...words.map((w, j) => h(j ? "div" : "strong", {}, w)));
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(x + 10, drawn - tip.offsetWidth - 4))}px`;
    if (say) text(said, words.join(", "));
  };
  const hide = () => {
    at = -1;
    tip.hidden = true;
    cursor.remove();
  };
  box.addEventListener("pointermove", (e) => {
    if (!marks?.count) return;
    const x = e.clientX - box.getBoundingClientRect().left;
    let best = 0;
    for (let i = 1; i < marks.count; i++) if (Math.abs(marks.x(i) - x) < Math.abs(marks.x(best) - x)) best = i;
    point(best);
  });
  box.addEventListener("pointerleave", hide);
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (e.key === "Escape") hide();
    if (!step || !marks?.count) return;
    e.preventDefault();
    point(at < 0 ? marks.count - 1 : Math.max(0, Math.min(marks.count - 1, at + step)), true);
  });
  new ResizeObserver(() => box.clientWidth !== drawn && redraw()).observe(box);
  return Object.assign(box, { redraw });
}

// axes draws the lines of a chart and its numbers, and returns the height of a value.
function axes(svg, width, height, most, number) {
  const { top, step } = ceiling(most);
  const y = (v) => height - BOTTOM - ((height - BOTTOM - TOP) * v) / top;
  for (let v = 0; v <= top + step / 2; v += step) {
    svg.append(
      s("line", { class: v === 0 ? "axis" : "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }),
      s("text", { class: "label", x: LEFT - 8, y: y(v) + 4, "text-anchor": "end" }, number(v)),
    );
  }
  return y;
}

// below writes moments under a chart, as many as there is room for.
function below(svg, width, height, ticks) {
  const most = Math.max(2, Math.floor((width - LEFT) / 90));
  const every = Math.ceil(ticks.length / most);
  ticks.forEach(({ x, words }, i) => {
    if (i % every) return;
    const anchor = x < LEFT + 20 ? "start" : x > width - 40 ? "end" : "middle";
    svg.append(s("text", { class: "label", x, y: height - 6, "text-anchor": anchor }, words));
  });
}

// lines makes a chart of what happens a second. Series are {name, values}, the second
// one is dashed. set(series, end, step) gives it values, the last of which is of the
// moment end, with so many milliseconds between them.
export function lines(label, { height = 220, number, moment, n }) {
  let series = [], end = Date.now(), step = 1000;
  const box = frame(label, height, (svg, width) => {
    const most = Math.max(0, ...series.flatMap((one) => one.values));
    const y = axes(svg, width, height, most, number);
    const x = (i) => LEFT + ((width - LEFT - RIGHT) * i) / (n - 1);
    const minute = 60e3 / step, ticks = [];
    for (let i = n - 1; i >= 0; i -= minute) ticks.unshift({ x: x(i), words: i === n - 1 ? "now" : `−${Math.round((n - 1 - i) / minute)} min` });
    below(svg, width, height, ticks);
    series.forEach((one, k) => {
      const from = n - one.values.length;
      const points = one.values.map((v, i) => `${x(from + i).toFixed(1)},${y(v).toFixed(1)}`);
      if (k === 0 && points.length) svg.append(s("polygon", { class: "area", points: `${x(from)},${y(0)} ${points.join(" ")} ${x(n - 1)},${y(0)}` }));
      svg.append(s("polyline", { class: `line line-${k}`, fill: "none", points: points.join(" ") }));
    });
    const count = series[0]?.values.length ?? 0;
    return {
      count,
      x: (i) => x(n - count + i),
      words: (i) => [moment(end - (count - 1 - i) * step), ...series.map((one) => `${one.name} ${number(one.values[i] ?? 0)}`)],
    };
  });
  return Object.assign(box, {
    set(next, at, every) {
      [series, end, step] = [next, at, every];
      box.redraw();
    },
  });
}

// bars makes a chart of what was counted in steps of time. Points are {from, to, value,
// exact, complete}; those that are not complete are hatched.
export function bars(label, { height = 220, number, moment }) {
  let points = [];
  const box = frame(label, height, (svg, width) => {
    const values = points.map((p) => Number(p.value));
    const least = Math.min(0, ...values);
    const y = axes(svg, width, height, Math.max(0, ...values, -least), number);
    const room = (width - LEFT - RIGHT) / Math.max(points.length, 1);
    const gap = room > 4 ? Math.min(2, room / 5) : 0;
    const x = (i) => LEFT + room * i;
    const all = points.length ? new Date(points.at(-1).to) - new Date(points[0].from) : 0;
    below(svg, width, height, points.map((p, i) => ({ x: x(i) + room / 2, words: moment(p.from, all) })));
    points.forEach((p, i) => {
      const v = Math.max(0, values[i]);
      const up = Math.max(v > 0 ? 1 : 0, y(0) - y(v));
      svg.append(s("rect", { class: p.complete ? "bar" : room > 8 ? "bar part" : "bar thin part", x: (x(i) + gap / 2).toFixed(2), width: Math.max(0.5, room - gap).toFixed(2), y: (y(0) - up).toFixed(2), height: up.toFixed(2) }));
    });
    return { count: points.length, x: (i) => x(i) + room / 2, words: (i) => [moment(points[i].from, 0), number(points[i].value), points[i].complete ? "" : "not complete"].filter(Boolean) };
  });
  return Object.assign(box, {
    set(next) {
      points = next;
      box.redraw();
    },
  });
}

// shares makes a list of bars, each with its name, its number and its part of all.
export function shares(rows, number, percent) {
  const most = Math.max(...rows.map((r) => Number(r.count)), 1);
  const all = rows.reduce((sum, r) => sum + Number(r.count), 0);
  return h("ul", { class: "shares" }, rows.map((r) => {
    const bar = h("span", { class: "share-bar" });
    bar.style.width = `${Math.max(0.5, (100 * Number(r.count)) / most)}%`;
    return h("li", {}, h("span", { class: "share-name" }, r.name), h("span", { class: "share-track", "aria-hidden": "true" }, bar),
      h("span", { class: "share-count" }, number(r.count)), h("span", { class: "share-part" }, percent(Number(r.count), all)));
  }));
}
