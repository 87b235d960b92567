// The scatter plot: one SVG, drawn anew at every change; the nearest point answers the pointer.

const SVG = "http://www.w3.org/2000/svg";
const svg = document.getElementById("scatter");
const tip = document.getElementById("tip");
const MARKERS = {
  o: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", s: "M-3.6-3.6h7.2v7.2h-7.2z", D: "M0-5L5 0L0 5L-5 0z", "^": "M0-5L4.6 3.4H-4.6z",
  v: "M0 5L4.6-3.4H-4.6z", P: "M-1.6-4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z", p: "M0-4.8L4.6-1.5L2.8 3.9H-2.8L-4.6-1.5z",
};
let drawn = { view: null, at: new Map() };

// The marker of a type, for legends and tables.
function typeMark(type) {
  const mark = shape("svg", { class: "swatch", viewBox: "-6 -6 12 12", "aria-hidden": "true" });
  mark.append(shape("path", { d: MARKERS[DATA.types[type].marker] }));
  mark.style.fill = typeColor(type);
  mark.dataset.type = type;
  return mark;
}

// A text that fits so many pixels, with dots where letters are left out.
function shortened(text, pixels) {
  const most = Math.max(Math.floor(pixels / 7), 4);
  return text.length <= most ? text : `${text.slice(0, Math.ceil((most - 1) / 2))}…${text.slice(-Math.floor((most - 1) / 2))}`;
}

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Percentages from and to which an axis goes, so that all values and intervals lie inside.
function bounds(c, shown, axis) {
  const values = shown.flatMap((m) => [c.value[m.index], c.low[m.index], c.high[m.index]]).filter(Number.isFinite);
  if (axis === AXES.linear) {
    const room = 0.04 * Math.max(Math.max(...values) - Math.min(...values), 1);
    return [Math.max(0, Math.min(...values) - room), Math.min(100, Math.max(...values) + room)];
  }
  const between = values.filter((v) => v > 0 && v < 100);
  const edge = Math.min(1, ...between.map((v) => 0.7 * Math.min(v, 100 - v)));
  const places = values.map((v) => axis.to(Math.min(Math.max(v, edge), 100 - edge) / 100));
  const [low, high] = [Math.min(...places), Math.max(...places)];
  const room = 0.04 * Math.max(high - low, 0.02);
  return [100 * axis.from(low - room), 100 * axis.from(high + room)];
}

function frame(view) {
  const axis = AXES[state.axis];
  const width = Math.max(svg.clientWidth, 280);
  const height = Math.max(svg.clientHeight, 280);
  const box = { left: 58, top: 10, right: width - 14, bottom: height - 48 };
  const scale = (range, from, to) => {
    const [low, high] = range.map((v) => axis.to(v / 100));
    return (v) => from + ((axis.to(Math.min(Math.max(v, range[0]), range[1]) / 100) - low) / (high - low)) * (to - from);
  };
  const rangeX = bounds(view.x, view.shown, axis);
  const rangeY = bounds(view.y, view.shown, axis);
  return { axis, width, height, box, rangeX, rangeY, px: scale(rangeX, box.left, box.right), py: scale(rangeY, box.bottom, box.top) };
}

function drawScatter(view) {
  svg.replaceChildren();
  svg.classList.toggle("searching", state.query !== "" && !state.only);
  tip.hidden = true;
  drawn = { view, at: new Map() };
  byId("lines").replaceChildren(...(view.shown.length ? lineLegend(view) : []));
  if (!view.shown.length) {
    svg.append(shape("text", { x: 20, y: 40, class: "title" }, "No model is shown that has both results."));
    return;
  }
  const f = frame(view);
  svg.setAttribute("viewBox", `0 0 ${f.width} ${f.height}`);
  const clip = shape("clipPath", { id: "inside" });
  clip.append(shape("rect", { x: f.box.left, y: f.box.top, width: f.box.right - f.box.left, height: f.box.bottom - f.box.top }));
  const back = shape("g", { "clip-path": "url(#inside)" });
  svg.append(clip, ...axisMarks(f), back);
  back.append(...lineMarks(view, f));
  if (state.bars) back.append(...intervalMarks(view, f));
  svg.append(...pointMarks(view, f), ...nameMarks(view, f));
  svg.setAttribute("aria-label", `${counted(view.shown.length, "model")}, ${state.y} against ${state.x}. Arrow keys go from model to model.`);
}

function axisMarks(f) {
  const marks = [];
  for (const tick of percentTicks(...f.rangeX, f.axis, 55 / (f.box.right - f.box.left))) {
    const x = f.px(tick);
    marks.push(shape("line", { x1: x, x2: x, y1: f.box.top, y2: f.box.bottom, class: "gridline" }));
    marks.push(shape("text", { x, y: f.box.bottom + 16, "text-anchor": "middle" }, tick + DATA.unit));
  }
  for (const tick of percentTicks(...f.rangeY, f.axis, 34 / (f.box.bottom - f.box.top))) {
    const y = f.py(tick);
    marks.push(shape("line", { x1: f.box.left, x2: f.box.right, y1: y, y2: y, class: "gridline" }));
    marks.push(shape("text", { x: f.box.left - 6, y: y + 4, "text-anchor": "end" }, tick + DATA.unit));
  }
  const middleX = (f.box.left + f.box.right) / 2;
  const middleY = (f.box.top + f.box.bottom) / 2;
  marks.push(shape("text", { x: middleX, y: f.height - 10, "text-anchor": "middle", class: "title" }, shortened(state.x, f.box.right - f.box.left)));
  marks.push(shape("text", { transform: `translate(14 ${middleY}) rotate(-90)`, "text-anchor": "middle", class: "title" }, shortened(state.y, f.box.bottom - f.box.top)));
  return marks;
}

function lineMarks(view, f) {
  const marks = [];
  const low = Math.max(f.rangeX[0], f.rangeY[0]);
  const high = Math.min(f.rangeX[1], f.rangeY[1]);
  if (low < high) marks.push(shape("path", { d: `M${f.px(low)} ${f.py(low)}L${f.px(high)} ${f.py(high)}`, class: "identity" }));
  if (!view.fit) return marks;
  const pivot = Math.min(Math.max(view.fit.pivot, f.rangeX[0]), f.rangeX[1]);
  const sides = view.fit.pieces.length === 1 ? [f.rangeX] : [[f.rangeX[0], pivot], [pivot, f.rangeX[1]]];
  view.fit.pieces.forEach((piece, k) => {
    const [from, to] = sides[k].map((v) => f.axis.to(v / 100));
    const grid = Array.from({ length: 41 }, (_, i) => from + ((to - from) * i) / 40);
    const at = (t, value) => `${f.px(100 * f.axis.from(t)).toFixed(1)} ${f.py(100 * f.axis.from(value)).toFixed(1)}`;
    if (piece.n >= FEWEST_FOR_BAND) {
      const edges = grid.map((t) => middle(piece.draws.slopes.map((s, b) => piece.draws.intercepts[b] + s * t), DATA.confidence));
      const upper = grid.map((t, i) => at(t, edges[i][1]));
      const lower = grid.map((t, i) => at(t, edges[i][0])).reverse();
      marks.push(shape("path", { d: `M${[...upper, ...lower].join("L")}Z`, class: "band" }));
    }
    marks.push(shape("path", { d: `M${grid.map((t) => at(t, piece.intercept + piece.slope * t)).join("L")}`, class: "fit" }));
  });
  return marks;
}

// What the lines of the plot are: a sample of each that is drawn, and its words.
function lineLegend(view) {
  const level = `${+(100 * DATA.confidence).toFixed(2)} %`;
  const banded = view.fit && view.fit.pieces.some((piece) => piece.n >= FEWEST_FOR_BAND);
  const own = DATA.sources.length > 1 && view.shown.some((m) => DATA.sources[m.source] === "own");
  const items = [
    [view.fit, "M0 9L30 3", "fit", "line through standard models"],
    [banded, "M0 6L30 1V7L0 12Z", "band", `${level} band of the line`],
    [true, "M0 9L30 3", "identity", "y = x"],
    [state.bars, "M3 6H27M15 0V12", "interval", `${level} intervals`],
    [own, "M11 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "ring", "own results"],
  ];
  return items.filter(([there]) => there).map(([, d, kind, words]) => {
    const sample = shape("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" });
    sample.append(shape("path", { d, class: kind }));
    return element("span", {}, sample, words);
  });
}

// One path for all intervals of a type.
function intervalMarks(view, f) {
  const paths = new Map();
  for (const { index: i, type } of view.shown) {
    const [x, y] = [f.px(view.x.value[i]).toFixed(1), f.py(view.y.value[i]).toFixed(1)];
    let path = paths.get(type) || "";
    if (Number.isFinite(view.x.low[i])) path += `M${f.px(view.x.low[i]).toFixed(1)} ${y}H${f.px(view.x.high[i]).toFixed(1)}`;
    if (Number.isFinite(view.y.low[i])) path += `M${x} ${f.py(view.y.low[i]).toFixed(1)}V${f.py(view.y.high[i]).toFixed(1)}`;
    paths.set(type, path);
  }
  return [...paths].map(([type, d]) => shape("path", { d, class: "interval", stroke: typeColor(type) }));
}

function pointMarks(view, f) {
  const marks = [];
  const searching = state.query !== "" && !state.only;
  const size = view.shown.length > 60 ? 0.8 : 1.25;
  const strongLast = [...view.shown].sort((a, b) => searching * (isFound(a) - isFound(b)));
  for (const model of strongLast) {
    const x = f.px(view.x.value[model.index]);
    const y = f.py(view.y.value[model.index]);
    drawn.at.set(model.index, [x, y]);
    const own = DATA.sources[model.source] === "own" && DATA.sources.length > 1;
    const strength = searching ? (isFound(model) ? " strong" : " dim") : own ? " strong" : "";
    marks.push(shape("path", {
      d: MARKERS[DATA.types[model.type].marker], transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})`,
      fill: typeColor(model.type), class: `point${strength}`, "data-model": model.index,
    }));
  }
  const chosen = MODELS.find((m) => m.label === state.model);
  if (chosen && drawn.at.has(chosen.index)) {
    const [cx, cy] = drawn.at.get(chosen.index);
    marks.push(shape("circle", { cx, cy, r: 9, class: "ring" }));
  }
  return marks;
}

// ---- pointing and keys

function nearest(x, y, reach) {
  let best = null;
  let least = reach ** 2;
  for (const [index, [a, b]] of drawn.at) {
    const distance = (a - x) ** 2 + (b - y) ** 2;
    if (distance < least) [best, least] = [index, distance];
  }
  return best;
}

function showTip(index) {
  const { view } = drawn;
  const model = MODELS[index];
  const [x, y] = drawn.at.get(index);
  const rho = effectiveRobustness(view, index);
  const lines = [
    `${DATA.types[model.type].label}${DATA.sources.length > 1 ? `, ${DATA.sources[model.source]}` : ""}`,
    `x: ${withInterval(view.x, index)}`,
    `y: ${withInterval(view.y, index)}`,
    Number.isFinite(rho) ? `${rho >= 0 ? "+" : "−"}${Math.abs(rho).toFixed(2)} points ${rho >= 0 ? "above" : "below"} the line` : "no line",
  ];
  tip.replaceChildren(element("b", {}, model.label), ...lines.map((line) => element("div", {}, line)));
  tip.hidden = false;
  const right = x + 14 + tip.offsetWidth > svg.clientWidth;
  tip.style.left = `${Math.max(0, right ? x - 14 - tip.offsetWidth : x + 14)}px`;
  tip.style.top = `${Math.max(0, Math.min(y - 20, svg.clientHeight - tip.offsetHeight))}px`;
  return `${model.label}. ${lines.join(". ")}`;
}

function pointer(event) {
  const place = svg.getBoundingClientRect();
  return nearest(event.clientX - place.left, event.clientY - place.top, event.pointerType === "touch" ? 30 : 16);
}

svg.addEventListener("pointermove", (event) => {
  const index = pointer(event);
  if (index === null) tip.hidden = true;
  else showTip(index);
});
svg.addEventListener("pointerleave", () => { tip.hidden = true; });
svg.addEventListener("click", (event) => {
  const index = pointer(event);
  if (index !== null) choose(MODELS[index].label);
});

let walking = null;
svg.addEventListener("keydown", (event) => {
  const along = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, -1], ArrowDown: [1, 1] }[event.key];
  if (along && drawn.at.size) {
    event.preventDefault();
    const [coordinate, sign] = along;
    const order = [...drawn.at].sort((a, b) => sign * (a[1][coordinate] - b[1][coordinate])).map(([index]) => index);
    walking = order[(order.indexOf(walking) + 1) % order.length];
    document.getElementById("spoken").textContent = showTip(walking);
  } else if (event.key === "Enter" && walking !== null && drawn.at.has(walking)) {
    event.preventDefault(); // the key must not also press the button that gets the focus
    choose(MODELS[walking].label);
  }
});
