/* The script of a report's page. The element #data holds the runs and sections that html.py writes. */
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#332288", "#56b4e9", "#e69f00", "#8c510a", "#a0a000",
  "#7f7f7f"];
const DARK = ["#4aa8e0", "#ff8a3d", "#2fc79b", "#e59cc4", "#a99cf5", "#8fd0f7", "#f3bb3c", "#cf9350", "#cccc3a",
  "#b0b0b0"];
const DASHES = [[], [7, 4], [9, 3, 2, 3], [2, 3]];
const night = matchMedia("(prefers-color-scheme: dark)");
const color = index => (night.matches ? DARK : LIGHT)[index % LIGHT.length];
const token = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value); else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const short = value => {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(5)));
};

function card(index, value) {
  const run = DATA.runs[index];
  const head = [run.label, "seed " + run.seed, run.state, run.steps.toLocaleString("en") + " steps"];
  if (value !== null && value !== undefined) head.push(short(value));
  const list = element("dl");
  const add = (name, text, code) => text && list.append(
    element("dt", {}, name), element("dd", {}, code ? element("code", {}, text) : text));
  if (run.reason) list.append(element("dt", {}, "reason"), element("dd", {class: "bad"}, run.reason));
  add("directory", run.place);
  list.append(element("dt", {}, "commit"), element("dd", {}, run.commit || "none",
    ...(run.changed ? [element("span", {class: "bad"}, " + uncommitted changes (git.diff in the directory)")] : [])));
  add("command", run.command, true);
  add("this run’s options", run.overrides, true);
  add("W&B id", run.wandb);
  add("started", [run.started, run.host].filter(Boolean).join(" on "));
  return element("div", {class: "card"}, element("strong", {}, head.join(" · ")), list);
}

document.addEventListener("click", event => {
  const button = event.target.closest("button.number");
  if (!button) return;
  const row = button.closest("tr"), open = button.getAttribute("aria-expanded") === "true";
  for (const other of row.querySelectorAll("button.number")) other.setAttribute("aria-expanded", "false");
  if (row.nextElementSibling?.classList.contains("behind")) row.nextElementSibling.remove();
  if (open) return;
  button.setAttribute("aria-expanded", "true");
  const cards = JSON.parse(button.dataset.runs).map(([index, value]) => card(index, value));
  row.after(element("tr", {class: "behind"},
    element("td", {colspan: row.children.length}, element("div", {class: "cards"}, ...cards))));
});

function ticks(low, high, count, log) {
  if (log) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), found = [];
    const parts = last - first <= 2 ? [1, 2, 5] : [1], every = Math.max(1, Math.ceil((last - first) / count));
    for (let power = first; power <= last; power += every) for (const part of parts) {
      const tick = part * 10 ** power;
      if (tick >= low && tick <= high) found.push(tick);
    }
    if (found.length > 1) return found;
  }
  const rough = (high - low) / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * size).find(one => one >= rough) || rough, found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
    found.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return found;
}
const tickText = value => Math.abs(value) >= 1e4 && Math.abs(value) < 1e6 ? value / 1000 + "k" :
  Math.abs(value) >= 1e6 && Math.abs(value) < 1e9 ? Number((value / 1e6).toPrecision(4)) + "M" : short(value);

/* A panel: marks are {run, x: [...], y: [...], index, line, hollow, name}. Drag to zoom, double-click for the whole range. */
class Panel {
  constructor(title, names, onpick) {
    this.canvas = element("canvas"); this.tip = element("div", {class: "tip", hidden: ""});
    this.figure = element("figure", {}, element("figcaption", {}, title), this.canvas, this.tip);
    this.names = names; this.marks = []; this.lines = []; this.view = null; this.onpick = onpick;
    this.xlog = this.ylog = false;
    const place = event => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("pointerdown", event => {
      this.from = this.to = place(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", event => {
      if (this.from) { this.to = place(event); this.draw(); } else this.hover(place(event));
    });
    this.canvas.addEventListener("pointerup", event => this.release(place(event), event.pointerType === "touch"));
    this.canvas.addEventListener("pointercancel", () => { this.from = null; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("dblclick", () => { this.view = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }
  show(marks, lines, xlog, ylog) {
    if (xlog !== this.xlog || ylog !== this.ylog) this.view = null;
    this.xlog = xlog; this.ylog = ylog; this.lines = lines; this.marks = marks; this.draw();
  }
  limits() {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const mark of this.marks) for (let i = 0; i < mark.x.length; i++) {
      const x = mark.x[i], y = mark.y[i];
      if ((this.xlog && x <= 0) || (this.ylog && y <= 0)) continue;
      if (x < left) left = x; if (x > right) right = x; if (y < low) low = y; if (y > high) high = y;
    }
    if (left > right) return [0, 1, this.ylog ? 0.1 : 0, 1];
    for (const y of this.lines) if (!this.ylog || y > 0) { low = Math.min(low, y); high = Math.max(high, y); }
    const pad = (a, b, log) => {
      const factor = a === b ? 1.5 : (b / a) ** 0.04, more = a === b ? Math.abs(a) * 0.1 || 1 : (b - a) * 0.04;
      return log ? [a / factor, b * factor] : [a - more, b + more];
    };
    const from = Math.min(left, 0);
    const across = this.names.wide ? pad(left, right, this.xlog) : [from, right + (right - from) * 0.02];
    return [...across, ...pad(low, high, this.ylog)];
  }
  scales() {
    const [left, right, low, high] = this.view || this.limits(), area = this.area;
    const scale = (a, b, p, q, log) => log ? v => p + (q - p) * Math.log(v / a) / Math.log(b / a) :
      v => p + (q - p) * (v - a) / (b - a || 1);
    const back = (a, b, p, q, log) => log ? v => a * (b / a) ** ((v - p) / (q - p)) :
      v => a + (b - a) * (v - p) / (q - p);
    const xs = [left, right, area.left, area.right, this.xlog], ys = [low, high, area.bottom, area.top, this.ylog];
    return {x: scale(...xs), y: scale(...ys), ix: back(...xs), iy: back(...ys), left, right, low, high};
  }
  draw() {
    const width = this.canvas.clientWidth; if (!width) return;
    const height = Math.round(Math.min(420, Math.max(230, width * 0.5))), ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio; this.canvas.style.height = height + "px";
    const pen = this.canvas.getContext("2d"); pen.scale(ratio, ratio); pen.font = "12px system-ui, sans-serif";
    this.area = {left: 58, right: width - 10, top: 10, bottom: height - 36};
    const area = this.area, scale = this.scales(), ink = token("--ink"), faint = token("--faint"),
      line = token("--line");
    pen.lineWidth = 1; pen.fillStyle = faint; pen.strokeStyle = line;
    pen.textAlign = "center"; pen.textBaseline = "top";
    for (const tick of ticks(scale.left, scale.right, Math.max(2, width / 110), this.xlog)) {
      const x = scale.x(tick); pen.beginPath(); pen.moveTo(x, area.top); pen.lineTo(x, area.bottom); pen.stroke();
      pen.fillText(tickText(tick), Math.min(x, width - 16), area.bottom + 5);
    }
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const tick of ticks(scale.low, scale.high, height / 55, this.ylog)) {
      const y = scale.y(tick); pen.beginPath(); pen.moveTo(area.left, y); pen.lineTo(area.right, y); pen.stroke();
      pen.fillText(tickText(tick), area.left - 6, y);
    }
    pen.textAlign = "center"; pen.textBaseline = "bottom";
    pen.fillText(this.names.x, (area.left + area.right) / 2, height - 1);
    pen.save(); pen.translate(11, (area.top + area.bottom) / 2); pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle"; pen.fillText(this.names.y, 0, 0); pen.restore();
    pen.save(); pen.beginPath(); pen.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
    pen.clip();
    pen.strokeStyle = ink; pen.setLineDash([1, 3]); pen.lineWidth = 1.5;
    for (const y of this.lines) {
      pen.beginPath(); pen.moveTo(area.left, scale.y(y)); pen.lineTo(area.right, scale.y(y)); pen.stroke();
    }
    const many = this.marks.filter(mark => mark.line).length > 60;
    for (const mark of this.marks) {
      pen.strokeStyle = pen.fillStyle = color(mark.index); pen.globalAlpha = many && mark.line ? .55 : 1;
      if (mark.line) {
        pen.setLineDash(DASHES[mark.index % DASHES.length]); pen.lineWidth = many ? 1 : 1.5; pen.beginPath();
        let down = false;
        for (let i = 0; i < mark.x.length; i++) {
          if (this.ylog && mark.y[i] <= 0) { down = false; continue; }
          const x = scale.x(mark.x[i]), y = scale.y(mark.y[i]);
          if (down) pen.lineTo(x, y); else pen.moveTo(x, y); down = true;
        }
        pen.stroke();
      }
      pen.setLineDash([]);
      if (!mark.line || mark.x.length < 2) for (let i = 0; i < mark.x.length; i++) {
        const x = scale.x(mark.x[i]), y = scale.y(mark.y[i]); pen.lineWidth = 1.5; pen.beginPath();
        if (mark.hollow) { pen.rect(x - 4, y - 4, 8, 8); pen.stroke(); }
        else if (mark.end) {
          pen.moveTo(x, y - 5); pen.lineTo(x + 5, y); pen.lineTo(x, y + 5); pen.lineTo(x - 5, y); pen.fill();
        } else { pen.arc(x, y, 4, 0, 7); pen.fill(); }
      }
    }
    pen.restore();
    if (this.from && this.to) {
      pen.strokeStyle = ink; pen.setLineDash([4, 3]);
      pen.strokeRect(...this.from, this.to[0] - this.from[0], this.to[1] - this.from[1]); pen.setLineDash([]);
    }
    this.scale = scale;
  }
  nearest([px, py]) {
    let best = 30 ** 2, found = null;
    const take = (mark, i, distance) => { if (distance < best) { best = distance; found = {mark, i}; } };
    for (const mark of this.marks) {
      let before = null;
      for (let i = 0; i < mark.x.length; i++) {
        const here = [this.scale.x(mark.x[i]), this.scale.y(mark.y[i])];
        take(mark, i, (here[0] - px) ** 2 + (here[1] - py) ** 2);
        if (mark.line && before && (before[0] - px) * (here[0] - px) <= 0) { // between two points the line counts
          const share = (px - before[0]) / (here[0] - before[0] || 1), y = before[1] + share * (here[1] - before[1]);
          take(mark, share < .5 ? i - 1 : i, (y - py) ** 2 + .1);
        }
        before = here;
      }
    }
    return found;
  }
  hover(at) {
    const found = this.scale && this.nearest(at); this.tip.hidden = !found; if (!found) return;
    const {mark, i} = found;
    const at_x = this.names.x + " " + mark.x[i].toLocaleString("en");
    this.tip.textContent = mark.name + ": " + at_x + ", " + this.names.y + " " + short(mark.y[i]);
    const width = this.canvas.clientWidth, inside = (v, a, b) => Math.min(Math.max(v, a), b);
    const x = inside(this.scale.x(mark.x[i]), this.area.left, this.area.right);
    const y = inside(this.scale.y(mark.y[i]), this.area.top, this.area.bottom);
    this.tip.style.left = x > width / 2 ? "" : x + 10 + "px";
    this.tip.style.right = x > width / 2 ? width - x + 10 + "px" : "";
    this.tip.style.top = this.canvas.offsetTop + Math.max(0, y - 34) + "px";
  }
  release(at, touched) {
    const from = this.from; this.from = this.to = null; if (!from) return;
    const wide = Math.abs(at[0] - from[0]), tall = Math.abs(at[1] - from[1]);
    if (wide < 6 && tall < 6) {
      const found = this.nearest(at); this.hover(at);
      if (found && found.mark.run !== undefined) this.onpick(found.mark.run, found.mark.y[found.i]);
    } else if (wide > 12 || tall > 12) {
      // touch zooms along x only: a vertical movement scrolls the page
      const {ix, iy, left, right, low, high} = this.scale, inside = (v, a, b) => Math.min(Math.max(v, a), b);
      const sorted = values => values.sort((a, b) => a - b);
      const [x0, x1] = sorted([from[0], at[0]].map(v => ix(inside(v, this.area.left, this.area.right))));
      const [y0, y1] = sorted([from[1], at[1]].map(v => iy(inside(v, this.area.top, this.area.bottom))));
      this.view = [...(wide > 12 ? [x0, x1] : [left, right]), ...(tall > 12 && !touched ? [y0, y1] : [low, high])];
    }
    this.draw();
  }
}

function legend(names, hidden, changed) {
  const box = element("div", {class: "legend"});
  names.forEach((name, index) => {
    const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    swatch.setAttribute("width", 26); swatch.setAttribute("height", 8);
    const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({x1: 0, x2: 26, y1: 4, y2: 4, "stroke-width": 3, stroke: color(index),
      "stroke-dasharray": DASHES[index % DASHES.length].join(" ")})) stroke.setAttribute(key, value);
    swatch.append(stroke);
    const button = element("button", {type: "button", "aria-pressed": !hidden.has(name),
      title: "Click to show or hide; Shift-click to show only this one"}, swatch, name);
    button.addEventListener("click", event => {
      if (event.shiftKey) {
        const alone = hidden.size === names.length - 1 && !hidden.has(name);
        hidden.clear();
        if (!alone) names.forEach(one => one !== name && hidden.add(one));
      } else if (!hidden.delete(name)) hidden.add(name);
      changed();
    });
    box.append(button);
  });
  return box;
}

function select(label, options, changed) {
  const choices = options.map(([value, name]) => element("option", {value}, name));
  const box = element("select", {onchange: event => changed(event.target.value)}, ...choices);
  return options.length > 1 ? [element("label", {}, label + " ", box)] : [];
}

/* Curves and scores of a section, a panel for each task. */
function charts(root, section) {
  const indices = section.runs, run = index => DATA.runs[index], distinct = key => [...new Set(indices.map(key))];
  const groups = distinct(index => run(index).group).sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
  const metrics = DATA.metrics.filter(name => indices.some(index => run(index).curves[name]));
  const state = {metric: metrics.includes(section.first) ? section.first : metrics[0], by: "label", log: false};
  const hidden = new Set(), picked = element("div", {class: "cards"}), names = element("div");
  const size = groups.length > 6 ? "300px" : groups.length > 1 ? "440px" : "100%";
  const curves = element("div", {class: "panels", style: "--panel:" + size}), dots = curves.cloneNode();

  const panel = (title, axes, place) => {
    const made = new Panel(title, axes, (index, value) => picked.replaceChildren(card(index, value)));
    place.append(made.figure);
    return made;
  };
  const lined = groups.map(group => panel(group, {x: "step", y: ""}, curves));
  const axes = {x: "parameters", y: section.score, wide: true};
  const scattered = section.score ? groups.map(group => panel(group, axes, dots)) : [];

  const named = one => one.label + ", seed " + one.seed + (one.state === "DONE" ? "" : " (" + one.state + ")");
  const draw = () => {
    const values = distinct(index => run(index)[state.by]);
    names.replaceChildren(legend(values, hidden, draw));
    groups.forEach((group, number) => {
      const marks = [], points = [], floor = new Set();
      for (const index of indices) {
        const one = run(index), value = one[state.by], common = {run: index, index: values.indexOf(value)};
        if (one.group !== group || hidden.has(value)) continue;
        const curve = one.curves[state.metric];
        if (curve) marks.push({...common, x: curve[0], y: curve[1], line: true, name: named(one)});
        const test = state.metric.startsWith("val/") ? one.test[state.metric.slice(4)] : null;
        if (test !== null) marks.push({...common, x: [one.steps], y: [test], end: true, name: named(one) + " on test"});
        if (state.metric.endsWith("/loss") && one.baseline !== null) floor.add(one.baseline);
        if (one.score !== null) points.push({...common, x: [one.parameters], y: [one.score], name: named(one)});
      }
      for (const [label, where, x, y] of state.by === "label" ? section.paper : []) {
        const mark = {x: [x], y: [y], index: values.indexOf(label), hollow: true, name: label + ", paper"};
        if (where === group && mark.index >= 0 && !hidden.has(label)) points.push(mark);
      }
      lined[number].names.y = state.metric;
      lined[number].show(marks, [...floor], false, state.log);
      scattered[number]?.show(points, [], true, false);
    });
  };
  const whole = panels => panels.forEach(one => { one.view = null; one.draw(); });
  const again = (key, value) => {
    state[key] = value;
    if (key === "by") hidden.clear();
    if (key === "metric") lined.forEach(one => { one.view = null; });
    draw();
  };
  const log = element("input", {type: "checkbox", onchange: event => again("log", event.target.checked)});
  const back = element("button", {type: "button", onclick: () => whole([...lined, ...scattered])}, "whole range");
  const shown = select("Curve", metrics.map(name => [name, name]), value => again("metric", value));
  if (shown.length) shown[0].querySelector("select").value = state.metric;
  const keys = [["label", "row"], ["cell", "cell"], ["task", "task"]];
  const telling = keys.filter(([key]) => key === "label" || distinct(index => run(index)[key]).length > 1);
  const colored = select("Color by", telling, value => again("by", value));
  const controls = [...shown, ...colored, element("label", {}, log, " logarithmic"), back];
  root.append(element("h3", {}, "Curves"), element("div", {class: "controls"}, ...controls), curves, names, picked);
  if (scattered.length) root.append(element("h3", {}, "Parameters against score"), dots);
  night.addEventListener("change", draw);
  draw();
}

for (const root of document.querySelectorAll("[data-charts]")) {
  charts(root, DATA.sections[Number(root.dataset.charts)]);
}
