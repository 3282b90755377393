/* The script of a report's page, after charts.js. The element #data holds the runs and sections that html.py writes. */
const DATA = JSON.parse(document.getElementById("data").textContent);

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

/* A note below each table that is wider than its place, and a stop for the keyboard, whose arrows then scroll it. */
for (const box of document.querySelectorAll(".scroll")) {
  const note = element("p", {class: "faint more", hidden: ""}, "↔ This table scrolls sideways.");
  box.after(note);
  new ResizeObserver(() => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    note.hidden = !wide;
    if (wide) box.tabIndex = 0; else box.removeAttribute("tabindex");
  }).observe(box);
}

/* A chart on the page. Drag to zoom, double-click for the whole range; arrow keys move from point to point. */
class Panel extends Chart {
  constructor(title, names, onpick, legend, file) {
    super(names);
    this.title = title; this.onpick = onpick; this.current = null;
    this.canvas = element("canvas", {tabindex: 0, role: "img"});
    this.tip = element("div", {class: "tip", hidden: "", "aria-live": "polite"});
    const button = kind => element("button", {type: "button", title: "Save this chart as " + kind,
      onclick: () => save(this, title, this.entries(legend()), kind.toLowerCase(), file())}, kind);
    const caption = element("figcaption", {}, element("span", {}, title),
      element("span", {class: "export"}, button("SVG"), button("PNG")));
    this.figure = element("figure", {}, caption, this.canvas, this.tip);
    this.listen();
  }
  listen() {
    const place = event => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const on = (name, act) => this.canvas.addEventListener(name, act);
    on("pointerdown", event => {
      this.from = this.to = place(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    on("pointermove", event => {
      if (this.from) { this.to = place(event); this.draw(); } else this.tell(this.nearest(place(event)));
    });
    on("pointerup", event => this.release(place(event), event.pointerType === "touch"));
    on("pointercancel", () => { this.from = null; this.draw(); });
    on("pointerleave", () => { this.tip.hidden = true; });
    on("blur", () => { this.tip.hidden = true; });
    on("dblclick", () => this.whole());
    on("keydown", event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }
  /* The entries of a legend for what this chart shows. */
  entries(all) {
    const floors = [...new Set(this.floors.map(({name}) => name))].map(name => ({name}));
    return [...all.filter(({index}) => this.marks.some(mark => mark.index === index)), ...floors];
  }
  show(marks, floors, xlog, ylog) {
    if (xlog !== this.xlog || ylog !== this.ylog) this.view = null;
    Object.assign(this, {xlog, ylog, floors, marks, current: null});
    this.tip.hidden = true;
    this.canvas.setAttribute("aria-label", [this.title, this.names.y + " over " + this.names.x,
      "arrow keys move between points"].filter(Boolean).join(", "));
    this.draw();
  }
  whole() { this.view = null; this.draw(); }
  draw() {
    const width = this.canvas.clientWidth; if (!width) return;
    const height = Math.round(between(width * .5, 230, 420));
    this.canvas.style.height = height + "px";
    const pen = new CanvasPen(this.canvas, width, height, devicePixelRatio || 1), look = theme();
    this.paint(pen, width, height, look);
    if (this.from && this.to) {
      const [[a, b], [c, d]] = [this.from, this.to];
      pen.path([[a, b], [c, b], [c, d], [a, d]], {stroke: look.ink, dash: [4, 3], closed: true});
    }
  }
  tell(found) {
    this.tip.hidden = !found; if (!found) return;
    const {mark, i} = found;
    const spread = mark.deviation ? " ± " + short(mark.deviation[i]) : "";
    this.tip.textContent = mark.name + ": " + this.names.x + " " + mark.x[i].toLocaleString("en") + ", " +
      this.names.y + " " + short(mark.y[i]) + spread;
    const width = this.canvas.clientWidth, x = between(this.scale.x(mark.x[i]), this.area.left, this.area.right);
    const y = between(this.scale.y(mark.y[i]), this.area.top, this.area.bottom);
    this.tip.style.left = x > width / 2 ? "" : x + 10 + "px";
    this.tip.style.right = x > width / 2 ? width - x + 10 + "px" : "";
    this.tip.style.top = this.canvas.offsetTop + Math.max(0, y - 34) + "px";
  }
  pick(found) {
    if (!found || !found.mark.runs) return;
    const {runs, y} = found.mark;
    this.onpick(runs, runs.length > 1 ? null : y[found.i]);
  }
  key(event) {
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0]}[event.key];
    if (event.key === "Escape") this.whole();
    else if (event.key === "Enter") this.pick(this.current);
    else if (moves && this.marks.length && this.scale) {
      const at = this.current || {mark: this.marks[0], i: 0}, count = this.marks.length, [other, step] = moves;
      const mark = this.marks[(this.marks.indexOf(at.mark) + other + count) % count];
      const nearest = mark.x.reduce((best, x, i) =>
        Math.abs(x - at.mark.x[at.i]) < Math.abs(mark.x[best] - at.mark.x[at.i]) ? i : best, 0);
      const i = other ? nearest : between(at.i + (this.current ? step : 0), 0, mark.x.length - 1);
      this.current = {mark, i};
      this.tell(this.current);
    } else return;
    event.preventDefault();
  }
  release(at, touched) {
    const from = this.from; this.from = this.to = null; if (!from) return;
    const wide = Math.abs(at[0] - from[0]), tall = Math.abs(at[1] - from[1]);
    if (wide < 6 && tall < 6) {
      const found = this.nearest(at); this.tell(found); this.pick(found);
    } else if (wide > 12 || tall > 12) {
      // touch zooms along x only: a vertical movement scrolls the page
      const {ix, iy, left, right, low, high} = this.scale, {area} = this, sorted = pair => pair.sort((a, b) => a - b);
      const [x0, x1] = sorted([from[0], at[0]].map(v => ix(between(v, area.left, area.right))));
      const [y0, y1] = sorted([from[1], at[1]].map(v => iy(between(v, area.top, area.bottom))));
      this.view = [...(wide > 12 ? [x0, x1] : [left, right]), ...(tall > 12 && !touched ? [y0, y1] : [low, high])];
    }
    this.draw();
  }
}

function swatch(look, shape = "line") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("width", 28); made.setAttribute("height", 8); made.setAttribute("aria-hidden", "true");
  const sign = document.createElementNS("http://www.w3.org/2000/svg", shape);
  const place = shape === "line" ? {x1: 0, x2: 28, y1: 4, y2: 4} : {cx: 22, cy: 4, r: 4};
  for (const [key, value] of Object.entries({...place, ...look})) sign.setAttribute(key, value);
  made.append(sign);
  return made;
}

/* A legend whose entries hide and show their lines. */
function legend(entries, floors, hidden, changed) {
  const box = element("div", {class: "legend"});
  for (const {name, index, note, dot} of entries) {
    const colors = theme().colors, color = colors[index % colors.length];
    const sign = dot ? swatch({fill: color}, "circle") : swatch({"stroke-width": 2.5, stroke: color,
      "stroke-dasharray": DASHES[index % DASHES.length].join(" ")});
    const button = element("button", {type: "button", "aria-pressed": !hidden.has(name),
      title: "Click to show or hide; Shift-click to show only this one"}, sign, element("span", {}, name + note));
    button.addEventListener("click", event => {
      const names = entries.map(entry => entry.name);
      if (event.shiftKey) {
        const alone = hidden.size === names.length - 1 && !hidden.has(name);
        hidden.clear();
        if (!alone) names.forEach(one => one !== name && hidden.add(one));
      } else if (!hidden.delete(name)) hidden.add(name);
      changed(name);
    });
    box.append(button);
  }
  for (const {name} of floors) {
    const sign = swatch({"stroke-width": 2, stroke: "currentColor", "stroke-dasharray": FLOOR.join(" ")});
    box.append(element("span", {}, sign, name));
  }
  return box;
}

function select(label, options, value, changed) {
  const choices = options.map(([key, name]) => element("option", {value: key}, name));
  const box = element("select", {onchange: event => changed(event.target.value)}, ...choices);
  box.value = value;
  return options.length > 1 ? [element("label", {}, label + " ", box)] : [];
}

/* Curves and scores of a section, a panel for each task. */
function charts(root, section) {
  const indices = section.runs, run = index => DATA.runs[index], distinct = key => [...new Set(indices.map(key))];
  const groups = distinct(index => run(index).group).sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
  const metrics = section.metrics.filter(([name]) => indices.some(index => run(index).curves[name]));
  const names = metrics.map(([name]) => name), rows = distinct(index => run(index).label);
  const ofRow = (group, label) => indices.filter(index => run(index).group === group && run(index).label === label);
  const repeated = groups.some(group => rows.some(label => ofRow(group, label).length > 1));
  const state = {metric: names.includes(section.first) ? section.first : names[0], by: "label",
    seeds: repeated ? "mean" : "all", xlog: false, ylog: section.log};
  const hidden = new Set(), picked = element("div", {class: "cards"}), hint = element("p", {class: "faint hint"});
  const size = groups.length > 6 ? "300px" : groups.length > 1 ? "440px" : "100%";
  const curves = element("div", {class: "panels", style: "--panel:" + size}), dots = curves.cloneNode();
  const under = element("div", {class: groups.length > 4 ? "under" : ""}), underDots = under.cloneNode();

  const entries = (dot, group) => distinct(index => run(index)[state.by]).map((name, index) => {
    const own = indices.filter(i => run(i)[state.by] === name && (!group || run(i).group === group));
    const stopped = own.filter(i => run(i).state !== "DONE").length;
    return {name, index, dot, note: stopped ? ` (${stopped} not done)` : ""};
  });
  const shown = (dot, group) => () => entries(dot, group).map(one => ({...one, name: one.name + one.note}));
  const panel = (title, axes, place) => {
    const pick = (runs, value) => {
      picked.replaceChildren(...runs.map(index => card(index, value)));
      place.parentNode.after(picked);
    };
    const many = groups.length > 1, what = () => axes.wide ? "parameters" : state.metric;
    const file = () => [section.name, ...(many ? [title] : []), what()].join(" ").replace(/\W+/g, "-");
    const made = new Panel(many ? title : "", axes, pick, shown(Boolean(axes.wide), title), file);
    place.append(made.figure);
    return made;
  };
  const lined = groups.map(group => panel(group, {x: "step", y: ""}, curves));
  const axes = {x: "parameters", y: section.score, wide: true};
  const scattered = section.score ? groups.map(group => panel(group, {...axes}, dots)) : [];

  const named = one => one.label + ", seed " + one.seed + (one.state === "DONE" ? "" : " (" + one.state + ")");
  const marksOf = (group, label, values) => {
    const own = ofRow(group, label), index = values.indexOf(run(own[0])[state.by]), marks = [];
    const curve = i => run(i).curves[state.metric], test = i => run(i).test[state.metric] ?? null;
    const lines = own.filter(curve), tested = own.filter(i => test(i) !== null);
    if (state.seeds === "mean" && own.length > 1) {
      const many = `${label}, mean of ${lines.length} seeds`;
      const averaged = lines.length > 1 ? average(lines.map(curve)) : null;
      if (averaged && averaged.x.length) {
        marks.push({...averaged, runs: lines, index, line: true, name: many});
        averaged.rest.forEach(([x, y], i) => {
          const name = named(run(lines[i]));
          if (x.length > 1) marks.push({x, y, runs: [lines[i]], index, line: true, thin: true, name});
        });
      } else for (const i of lines) {
        const [x, y] = curve(i);
        marks.push({x, y, runs: [i], index, line: true, name: named(run(i))});
      }
      if (tested.length > 1) {
        const values = tested.map(test), y = mean(values), spread = deviation(values);
        const name = `${label}, mean of ${tested.length} seeds on test`;
        marks.push({x: [mean(tested.map(i => run(i).steps))], y: [y], low: [y - spread], high: [y + spread],
          deviation: [spread], runs: tested, index, end: true, name});
        return marks;
      }
    } else for (const i of lines) {
      const [x, y] = curve(i);
      marks.push({x, y, runs: [i], index, line: true, name: named(run(i))});
    }
    for (const i of tested) {
      marks.push({x: [run(i).steps], y: [test(i)], runs: [i], index, end: true, name: named(run(i)) + " on test"});
    }
    return marks;
  };
  const draw = () => {
    const values = distinct(index => run(index)[state.by]);
    const [, title, bounds] = metrics.find(([name]) => name === state.metric);
    const seen = new Set();
    let diamonds = false, longer = false;
    groups.forEach((group, number) => {
      const marks = [], points = [], floors = [];
      for (const label of rows) {
        const own = ofRow(group, label);
        if (!own.length || hidden.has(run(own[0])[state.by])) continue;
        marks.push(...marksOf(group, label, values));
        for (const i of own) {
          for (const [name, y] of run(i).floors[state.metric] || []) {
            if (!floors.some(floor => floor.y === y && floor.name === name)) floors.push({y, name});
          }
          const one = run(i), index = values.indexOf(one[state.by]), name = named(one);
          if (one.score !== null) points.push({runs: [i], index, x: [one.parameters], y: [one.score], name});
        }
      }
      for (const [label, where, x, y] of state.by === "label" ? section.paper : []) {
        const mark = {x: [x], y: [y], index: values.indexOf(label), hollow: true, name: label + ", paper"};
        if (where === group && mark.index >= 0 && !hidden.has(label)) points.push(mark);
      }
      floors.forEach(({name}) => seen.add(name));
      diamonds ||= marks.some(mark => mark.end);
      longer ||= marks.some(mark => mark.thin);
      lined[number].names.y = title; lined[number].names.bounds = bounds;
      lined[number].show(marks, floors, state.xlog, state.ylog);
      if (scattered.length) {
        scattered[number].names.bounds = section.bounds;
        scattered[number].show(points, [], true, false);
      }
    });
    const redraw = place => name => {
      draw();
      place.querySelectorAll("button")[entries().findIndex(entry => entry.name === name)]?.focus();
    };
    under.replaceChildren(legend(entries(false), [...seen].map(name => ({name})), hidden, redraw(under)));
    underDots.replaceChildren(legend(entries(true), [], hidden, redraw(underDots)));
    const notes = [];
    if (state.seeds === "mean") {
      notes.push("Lines and bands are means ± standard deviations over seeds.");
      if (longer) notes.push("Thin lines are seeds that trained longer than others of their row.");
    }
    if (diamonds) notes.push("◆ is the score on the test split.");
    notes.push("Click a line to see its runs, and an entry of the legend to hide it.");
    notes.push("Drag to zoom, double-click for the whole range.");
    hint.textContent = notes.join(" ");
  };
  const again = (key, value) => {
    state[key] = value;
    if (key === "by") hidden.clear();
    if (key === "metric") lined.forEach(one => { one.view = null; });
    draw();
  };
  const check = (key, text) => {
    const box = element("input", {type: "checkbox", onchange: event => again(key, event.target.checked)});
    box.checked = state[key];
    return element("label", {}, box, " " + text);
  };
  const back = element("button", {type: "button", onclick: () => [...lined, ...scattered].forEach(one => one.whole())},
    "whole range");
  const keys = [["label", "row"], ["cell", "cell"], ["task", "task"]];
  const telling = keys.filter(([key]) => key === "label" || distinct(index => run(index)[key]).length > 1);
  const modes = repeated ? [["mean", "mean and band"], ["all", "all seeds"]] : [["all", "all seeds"]];
  root.append(element("h3", {}, "Curves"), element("div", {class: "controls"},
    ...select("Curve", metrics, state.metric, value => again("metric", value)),
    ...select("Seeds", modes, state.seeds, value => again("seeds", value)),
    ...select("Color by", telling, state.by, value => again("by", value)),
    check("xlog", "log x"), check("ylog", "log y"), back), element("div", {}, curves, under), hint);
  if (scattered.length) {
    root.append(element("h3", {}, "Parameters against score"), element("div", {}, dots, underDots));
    if (section.paper.length) root.append(element("p", {class: "faint"}, "□ is a number of the paper."));
  }
  night.addEventListener("change", draw);
  addEventListener("beforeprint", () => { printing = true; draw(); });
  addEventListener("afterprint", () => { printing = false; draw(); });
  draw();
}

for (const root of document.querySelectorAll("[data-charts]")) {
  charts(root, DATA.sections[Number(root.dataset.charts)]);
}
