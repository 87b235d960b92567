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
  const fit = fitModels(through.map((m) => x.value[m.index]), through.map((m) => y.value[m.index]), state.axis);
  return { x, y, shown, fit };
}

function effectiveRobustness(view, i) {
  if (!view.fit) return NaN;
  return view.y.value[i] - predict(view.fit, inside(view.x.value[i]));
}

// 0 and 100 have no place on a logit axis.
function inside(value) {
  return state.axis === "linear" ? value : Math.min(Math.max(value, 0.01), 99.99);
}
