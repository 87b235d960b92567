// What is chosen, and its place in the address: the part after # says what differs from the start.

const START = {
  x: DATA.start.x, y: DATA.start.y, axis: DATA.start.axis, min: DATA.start.min, query: "", only: false, bars: true, names: false,
  tab: "scatter", model: "", hiddenTypes: [], hiddenSources: [], hiddenModels: [], columns: "", sort: "", up: false,
  rank: "rho", rankUp: false,
};
let state = { ...START };
const LISTS = ["hiddenTypes", "hiddenSources", "hiddenModels"];

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const next = { ...START };
  for (const [key, value] of given) {
    if (!(key in START)) continue;
    if (LISTS.includes(key)) next[key] = given.getAll(key);
    else next[key] = typeof START[key] === "boolean" ? value === "1" : value;
  }
  if (!isKnown(next.x)) next.x = START.x;
  if (!isKnown(next.y)) next.y = START.y;
  if (!(next.axis in AXES)) next.axis = START.axis;
  if (!["scatter", "ranking", "grid"].includes(next.tab)) next.tab = START.tab;
  state = next;
}

function writeAddress() {
  const told = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (LISTS.includes(key)) value.forEach((item) => told.append(key, item));
    else if (value !== START[key]) told.set(key, typeof value === "boolean" ? (value ? "1" : "0") : value);
  }
  const text = told.toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

function change(what) {
  state = { ...state, ...what };
  writeAddress();
  render();
}

function toggled(list, item, shown) {
  return shown ? list.filter((other) => other !== item) : [...list, item];
}

function isFound(model) {
  return state.query === "" || model.find.includes(state.query.toLowerCase());
}

function isFoundSetting(name) {
  return name.toLowerCase().includes(state.columns.toLowerCase());
}

// Not hidden by type, source, name or search, whatever numbers it has.
function isWanted(model) {
  return (
    !state.hiddenTypes.includes(DATA.types[model.type].tag)
    && !state.hiddenSources.includes(DATA.sources[model.source])
    && !state.hiddenModels.includes(model.label)
    && (!state.only || isFound(model))
  );
}

// All that a view of two settings needs: the models it shows, and the line through standard ones among them.
function currentView() {
  const x = column(state.x);
  const y = column(state.y);
  const least = state.min === "" ? -Infinity : Number(state.min);
  const shown = MODELS.filter(
    (m) => isWanted(m) && Number.isFinite(x.value[m.index]) && Number.isFinite(y.value[m.index]) && x.value[m.index] >= least,
  );
  let through = shown.filter((m) => m.line);
  const published = through.filter((m) => DATA.sources[m.source] !== "own");
  if (published.length) through = published;
  const of = (numbers) => through.map((m) => numbers[m.index]);
  const fit = fitModels(of(x.value), of(y.value), state.axis, [...of(x.n), ...of(y.n)]);
  // 0 and 100 have no place on a logit axis.
  const clip = state.axis === "linear" ? 0 : halfAnImage([...x.n, ...y.n]);
  return { x, y, shown, fit, clip };
}

function inside(view, value) {
  return Math.min(Math.max(value, view.clip), 100 - view.clip);
}

function expected(view, value) {
  return predict(view.fit, inside(view, value));
}

function effectiveRobustness(view, i) {
  if (!view.fit) return NaN;
  return view.y.value[i] - expected(view, view.x.value[i]);
}

// The sides of the uncertainties of y, of what x predicts, and of the line, added in squares, as in the Python statistics.
function rhoInterval(view, i) {
  const { x, y } = view;
  const rho = effectiveRobustness(view, i);
  const line = y.value[i] - rho;
  const ends = [x.low[i], x.high[i], x.value[i]].filter(Number.isFinite).map((v) => expected(view, v));
  const { slopes, intercepts } = pieceAt(view.fit, x.value[i]).draws;
  const place = view.fit.axis.to(inside(view, x.value[i]) / 100);
  const band = middle(slopes.map((slope, b) => intercepts[b] + slope * place), DATA.confidence)
    .map((t) => 100 * view.fit.axis.from(t));
  const side = (end) => (Number.isFinite(end) ? end : 0);
  const below = Math.hypot(side(y.value[i] - y.low[i]), Math.max(...ends) - line, Math.max(band[1] - line, 0));
  const above = Math.hypot(side(y.high[i] - y.value[i]), line - Math.min(...ends), Math.max(line - band[0], 0));
  return [rho - below, rho + above];
}
