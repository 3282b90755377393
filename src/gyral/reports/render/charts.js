/* Charts: drawn on a canvas of the page, and as SVG or PNG files for export. page.js follows in the same script. */
"use strict";
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#332288", "#56b4e9", "#e69f00", "#8c510a", "#a0a000",
  "#7f7f7f"];
const DARK = ["#4aa8e0", "#ff8a3d", "#2fc79b", "#e59cc4", "#a99cf5", "#8fd0f7", "#f3bb3c", "#cf9350", "#cccc3a",
  "#b0b0b0"];
const PAPER = {colors: LIGHT, ink: "#1b1b1f", faint: "#4c4f56", line: "#dcdee2", page: "#ffffff"};
const DASHES = [[], [7, 3], [2, 2.5], [8, 3, 2, 3]];
const FLOOR = [2, 3]; // dashes of the baseline
const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif";
const night = matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const token = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const theme = () => printing ? PAPER : {colors: night.matches ? DARK : LIGHT, ink: token("--ink"),
  faint: token("--faint"), line: token("--line"), page: token("--page")};
const between = (value, low, high) => Math.min(Math.max(value, low), high);
const ruler = document.createElement("canvas").getContext("2d");
const textWidth = text => { ruler.font = "12px " + FONT; return ruler.measureText(text).width; };

/* Labels of ticks: 2,000, 200k, 0.05, 10⁻⁵. */
function tickText(value) {
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size === 0) return "0";
  if (size >= 1e5) {
    const [factor, unit] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => size >= least);
    return sign + Number((size / factor).toPrecision(6)) + unit;
  }
  if (size >= 1e-3) return sign + (size >= 1000 ? Math.round(size).toLocaleString("en") : Number(size.toPrecision(6)));
  const power = Math.floor(Math.log10(size) + 1e-9), factor = Number((size / 10 ** power).toPrecision(3));
  const raised = String(-power).replace(/\d/g, digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
  return sign + (factor === 1 ? "" : factor + "·") + "10⁻" + raised;
}

/* The labeled ticks of an axis, at most about `count`, and the small ticks of a logarithmic one. */
function ticks(low, high, count, log) {
  const decades = log ? Math.log10(high / low) : 0, inside = tick => tick >= low * .9999 && tick <= high * 1.0001;
  if (log && decades > .5) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), large = [], small = [];
    const every = Math.max(1, Math.ceil(decades / count)), parts = decades * 3 <= count + 1 ? [1, 2, 5] : [1];
    for (let power = first; power <= last; power++) for (let part = 1; part < 10; part++) {
      const tick = Number((part * 10 ** power).toPrecision(3)), labeled = parts.includes(part) && power % every === 0;
      if (inside(tick)) (labeled ? large : every === 1 || part === 1 ? small : []).push(tick);
    }
    if (large.length > 1) return {large, small};
  }
  const rough = (high - low) / count, size = 10 ** Math.floor(Math.log10(rough)), large = [];
  const step = [1, 2, 2.5, 5, 10].map(factor => factor * size).find(one => one >= rough * .9999) || rough;
  for (let number = Math.ceil(low / step - 1e-9); number <= high / step + 1e-9; number++) {
    large.push(Number((number * step).toPrecision(12)));
  }
  return {large, small: []};
}

const sum = values => values.reduce((a, b) => a + b, 0), mean = values => sum(values) / values.length;
const deviation = values => Math.sqrt(sum(values.map(v => (v - mean(values)) ** 2)) / (values.length - 1));

/* The mean of curves [x, y] at the steps that all of them have reached, by linear interpolation where one has no
   point, and the rest of longer curves. */
function average(curves) {
  const first = Math.max(...curves.map(([x]) => x[0])), last = Math.min(...curves.map(([x]) => x[x.length - 1]));
  const steps = [...new Set(curves.flatMap(([x]) => x))].filter(x => x >= first && x <= last).sort((a, b) => a - b);
  const columns = curves.map(([x, y]) => {
    let i = 0;
    return steps.map(step => {
      while (i < x.length - 2 && x[i + 1] < step) i++;
      if (x.length === 1 || x[i] === step) return y[i];
      return y[i] + (y[i + 1] - y[i]) * (step - x[i]) / (x[i + 1] - x[i]);
    });
  });
  const values = steps.map((_, i) => columns.map(column => column[i])), deviations = values.map(deviation);
  const rest = curves.map(([x, y]) => {
    const from = x.findIndex(step => step >= last);
    return [x.slice(from), y.slice(from)];
  });
  const means = values.map(mean);
  return {x: steps, y: means, deviation: deviations, low: means.map((v, i) => v - deviations[i]),
    high: means.map((v, i) => v + deviations[i]), rest};
}

/* Two pens with the same methods. Points are [x, y]; a style has stroke, fill, width, dash and alpha. */
class CanvasPen {
  constructor(canvas, width, height, ratio) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    this.pen = canvas.getContext("2d"); this.pen.scale(ratio, ratio);
  }
  path(points, {stroke, fill, width = 1, dash = [], alpha = 1, closed = false}) {
    const pen = this.pen; pen.globalAlpha = alpha; pen.beginPath(); pen.lineJoin = "round";
    points.forEach(([x, y], index) => index ? pen.lineTo(x, y) : pen.moveTo(x, y));
    if (closed) pen.closePath();
    if (fill) { pen.fillStyle = fill; pen.fill(); }
    if (stroke) { pen.strokeStyle = stroke; pen.lineWidth = width; pen.setLineDash(dash); pen.stroke(); }
    pen.globalAlpha = 1;
  }
  circle(x, y, radius, color) {
    this.pen.beginPath(); this.pen.arc(x, y, radius, 0, 7); this.pen.fillStyle = color; this.pen.fill();
  }
  text(text, x, y, {color, anchor = "start", turned = false, bold = false}) {
    const pen = this.pen; pen.save(); pen.translate(x, y); if (turned) pen.rotate(-Math.PI / 2);
    pen.font = (bold ? "600 " : "") + "12px " + FONT; pen.fillStyle = color; pen.textBaseline = "alphabetic";
    pen.textAlign = anchor === "middle" ? "center" : anchor; pen.fillText(text, 0, 0); pen.restore();
  }
  inside(area, draw) {
    this.pen.save(); this.pen.beginPath();
    this.pen.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
    this.pen.clip(); draw(); this.pen.restore();
  }
}

class SvgPen {
  constructor(width, height) { this.size = [width, height]; this.parts = []; }
  static escape(text) { return text.replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`); }
  static number(value) { return Number(value.toFixed(2)); }
  path(points, {stroke, fill, width = 1, dash = [], alpha = 1, closed = false}) {
    if (points.length < 2) return;
    const data = points.map(([x, y], i) => (i ? "L" : "M") + SvgPen.number(x) + " " + SvgPen.number(y)).join("");
    const line = stroke ? ` stroke="${stroke}" stroke-width="${width}" stroke-linejoin="round"` : "";
    const dashes = stroke && dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    const opacity = alpha < 1 ? ` opacity="${alpha}"` : "";
    this.parts.push(`<path d="${data}${closed ? "Z" : ""}" fill="${fill || "none"}"${line}${dashes}${opacity}/>`);
  }
  circle(x, y, radius, color) {
    this.parts.push(`<circle cx="${SvgPen.number(x)}" cy="${SvgPen.number(y)}" r="${radius}" fill="${color}"/>`);
  }
  text(text, x, y, {color, anchor = "start", turned = false, bold = false}) {
    const place = `x="${SvgPen.number(x)}" y="${SvgPen.number(y)}"`;
    const turn = turned ? ` transform="rotate(-90 ${SvgPen.number(x)} ${SvgPen.number(y)})"` : "";
    const weight = bold ? ' font-weight="600"' : "", end = anchor === "start" ? "" : ` text-anchor="${anchor}"`;
    this.parts.push(`<text ${place} fill="${color}"${end}${weight}${turn}>${SvgPen.escape(text)}</text>`);
  }
  inside(area, draw) {
    const box = `x="${area.left}" y="${area.top}" width="${area.right - area.left}" height="${area.bottom - area.top}"`;
    this.parts.push(`<clipPath id="plot"><rect ${box}/></clipPath><g clip-path="url(#plot)">`);
    draw(); this.parts.push("</g>");
  }
  toString() {
    const [width, height] = this.size, size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    const font = `font-family="${FONT}" font-size="12"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${font}>\n<rect width="${width}" height="${height}" ` +
      `fill="#ffffff"/>\n${this.parts.join("\n")}\n</svg>\n`;
  }
}

/* A chart. Its marks are {x, y, index, line, name, runs}, and optionally {low, high}: a band; thin: a line of one seed
   after the mean ends; hollow or end: shapes of points. Its floors are {y, name}: horizontal lines. */
class Chart {
  constructor(names) {
    this.names = names; this.marks = []; this.floors = []; this.view = null; this.xlog = this.ylog = false;
  }
  limits() {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity], [least, most] = [Infinity, -Infinity];
    for (const mark of this.marks) for (let i = 0; i < mark.x.length; i++) {
      const x = mark.x[i], ys = mark.low && !this.ylog ? [mark.y[i], mark.low[i], mark.high[i]] : [mark.y[i]];
      if ((this.xlog && x <= 0) || (this.ylog && mark.y[i] <= 0)) continue;
      left = Math.min(left, x); right = Math.max(right, x);
      low = Math.min(low, ...ys); high = Math.max(high, ...ys);
      least = Math.min(least, mark.y[i]); most = Math.max(most, mark.y[i]);
    }
    if (left > right) return this.xlog || this.ylog ? [1, 10, .1, 1] : [0, 1, 0, 1];
    for (const {y} of this.floors) if (!this.ylog || y > 0) { low = Math.min(low, y); high = Math.max(high, y); }
    const pad = (a, b, log) => {
      const same = b - a <= 1e-4 * Math.max(Math.abs(a), Math.abs(b)); // ticks have no digits for the difference
      const factor = same ? 1.5 : (b / a) ** .04, more = same ? Math.abs(a) * .1 || 1 : (b - a) * .04;
      return log ? [a / factor, b * factor] : [a - more, b + more];
    };
    let [bottom, top] = pad(low, high, this.ylog);
    if (this.names.bounds && !this.ylog) { // little room below 0 and above 100 %, also for a band
      const [start, end] = this.names.bounds, room = (end - start) * .02;
      if (least >= start) bottom = Math.max(bottom, start - room);
      if (most <= end * 1.0001) top = Math.min(top, end + room);
    }
    if (this.xlog || this.names.wide) return [...pad(left, right, this.xlog), bottom, top];
    const from = Math.min(left, 0);
    return [from, right + (right - from) * .02, bottom, top];
  }
  /* Set the area of the chart and its scales from data to points. */
  lay(width, height, top) {
    const [left, right, low, high] = this.view || this.limits();
    const plot = height - top - 42, ys = ticks(low, high, Math.max(3, plot / 45), this.ylog);
    const margin = 30 + Math.max(...ys.large.map(tick => textWidth(tickText(tick))), 8);
    const area = this.area = {left: Math.round(margin), right: width - 14, top, bottom: height - 42};
    let count = (area.right - area.left) / 60, xs = null;
    do {
      xs = ticks(left, right, Math.max(2, count), this.xlog);
      count -= 1;
    } while (count > 2 && xs.large.length * (14 + Math.max(...xs.large.map(tick => textWidth(tickText(tick))))) >
      area.right - area.left);
    const scale = (a, b, p, q, log) => log ? v => p + (q - p) * Math.log(v / a) / Math.log(b / a) :
      v => p + (q - p) * (v - a) / (b - a || 1);
    const back = (a, b, p, q, log) => log ? v => a * (b / a) ** ((v - p) / (q - p)) :
      v => a + (b - a) * (v - p) / (q - p);
    const across = [left, right, area.left, area.right, this.xlog], up = [low, high, area.bottom, area.top, this.ylog];
    this.scale = {x: scale(...across), y: scale(...up), ix: back(...across), iy: back(...up), left, right, low, high};
    return [xs, ys];
  }
  paint(pen, width, height, look, top = 10) {
    const [xs, ys] = this.lay(width, height, top), {area, scale} = this, label = {color: look.faint};
    const stroke = {stroke: look.line}, tick = {stroke: look.faint};
    for (const value of xs.large) {
      const x = scale.x(value), half = textWidth(tickText(value)) / 2;
      pen.path([[x, area.top], [x, area.bottom]], stroke);
      pen.text(tickText(value), Math.min(x, width - half - 1), area.bottom + 16, {...label, anchor: "middle"});
    }
    for (const value of ys.large) {
      const y = scale.y(value);
      pen.path([[area.left, y], [area.right, y]], stroke);
      pen.text(tickText(value), area.left - 7, y + 4, {...label, anchor: "end"});
    }
    for (const value of xs.small) pen.path([[scale.x(value), area.bottom], [scale.x(value), area.bottom - 4]], tick);
    for (const value of ys.small) pen.path([[area.left, scale.y(value)], [area.left + 4, scale.y(value)]], tick);
    pen.path([[area.left, area.top], [area.left, area.bottom], [area.right, area.bottom]], tick);
    pen.text(this.names.x, (area.left + area.right) / 2, height - 8, {...label, anchor: "middle"});
    pen.text(this.names.y, 14, (area.top + area.bottom) / 2, {...label, anchor: "middle", turned: true});
    pen.inside(area, () => this.paintMarks(pen, look));
  }
  paintMarks(pen, look) {
    const {area, scale} = this, color = mark => look.colors[mark.index % look.colors.length];
    // a value that a logarithmic axis cannot show is far below it
    const place = (x, y) => [scale.x(x), this.ylog && y <= 0 ? area.bottom + 1e4 : scale.y(y)];
    for (const mark of this.marks) if (mark.low && mark.x.length > 1) {
      const upper = mark.x.map((x, i) => place(x, mark.high[i])), lower = mark.x.map((x, i) => place(x, mark.low[i]));
      pen.path([...upper, ...lower.reverse()], {fill: color(mark), alpha: .2, closed: true});
    }
    for (const {y} of this.floors) {
      pen.path([[area.left, scale.y(y)], [area.right, scale.y(y)]], {stroke: look.ink, width: 1.5, dash: FLOOR});
    }
    const many = this.marks.filter(mark => mark.line).length > 60;
    for (const mark of this.marks) {
      const points = mark.x.map((x, i) => place(x, mark.y[i])).filter((_, i) => !this.xlog || mark.x[i] > 0);
      if (mark.line && points.length > 1) {
        const style = {stroke: color(mark), dash: DASHES[mark.index % DASHES.length]};
        pen.path(points, {...style, width: many || mark.thin ? 1 : 1.8, alpha: many || mark.thin ? .55 : 1});
      } else for (const [x, y] of points) {
        if (mark.low) {
          pen.path([place(mark.x[0], mark.low[0]), place(mark.x[0], mark.high[0])], {stroke: color(mark), width: 1.5});
        }
        if (mark.hollow) {
          const box = [[x - 4, y - 4], [x + 4, y - 4], [x + 4, y + 4], [x - 4, y + 4]];
          pen.path(box, {stroke: color(mark), width: 1.5, closed: true});
        } else if (mark.end) {
          pen.path([[x, y - 5], [x + 5, y], [x, y + 5], [x - 5, y]], {fill: color(mark), closed: true});
        } else pen.circle(x, y, 4, color(mark));
      }
    }
  }
  /* The mark and the number of its point that is nearest to a place, if one is near. */
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
}

/* The lines of a legend that is `width` wide: [[{x, name, dot, index or undefined for a baseline}]]. */
function legendRows(entries, width) {
  const rows = [[]];
  let x = 0;
  for (const entry of entries) {
    const size = 34 + textWidth(entry.name) + 18;
    if (x > 0 && x + size - 18 > width) { rows.push([]); x = 0; }
    rows[rows.length - 1].push({...entry, x}); x += size;
  }
  return rows;
}

/* Save a chart with its title and legend as a file, in light colors on white. */
function save(chart, title, legend, kind, name) {
  const width = 640, rows = legendRows(legend, width - 28), top = title ? 34 : 12, height = top + 360;
  const full = height + 20 * rows.length + 6, shape = [chart.area, chart.scale];
  const draw = pen => {
    if (title) pen.text(title, 14, 20, {color: PAPER.ink, bold: true});
    chart.paint(pen, width, height, PAPER, top);
    rows.forEach((row, number) => row.forEach(entry => {
      const x = entry.x + 14, y = height + 10 + 20 * number, floor = entry.index === undefined;
      if (entry.dot) { pen.circle(x + 22, y, 4, LIGHT[entry.index % LIGHT.length]); }
      const line = floor ? {stroke: PAPER.ink, width: 1.5, dash: FLOOR} : {width: 2,
        stroke: LIGHT[entry.index % LIGHT.length], dash: DASHES[entry.index % DASHES.length]};
      if (!entry.dot) pen.path([[x, y], [x + 28, y]], line);
      pen.text(entry.name, x + 34, y + 4, {color: PAPER.ink});
    }));
  };
  const finish = blob => {
    const link = document.createElement("a"), url = URL.createObjectURL(blob);
    link.href = url; link.download = name + "." + kind; link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };
  if (kind === "svg") {
    const pen = new SvgPen(width, full); draw(pen);
    finish(new Blob([pen.toString()], {type: "image/svg+xml"}));
  } else {
    const canvas = document.createElement("canvas"), pen = new CanvasPen(canvas, width, full, 3);
    pen.path([[0, 0], [width, 0], [width, full], [0, full]], {fill: PAPER.page, closed: true}); draw(pen);
    canvas.toBlob(finish, "image/png");
  }
  [chart.area, chart.scale] = shape;
}
