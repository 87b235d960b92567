// The results as they came with the page: models, settings, and a column of numbers for each setting on demand.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MODELS = DATA.models.map(([name, label, source, type, line, facts], index) => ({
  index, name, label, source, type, line: line === 1, facts, find: label.toLowerCase(),
}));
const COLUMNS = new Map();

// "1 model", "2 models".
function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// {value, low, high, n} of a setting or an average; NaN where a model has none.
function column(name) {
  if (!COLUMNS.has(name)) COLUMNS.set(name, name in DATA.averages ? averageColumn(name) : settingColumn(name));
  return COLUMNS.get(name);
}

function settingColumn(name) {
  const place = DATA.settings.indexOf(name);
  const number = (v) => (v === null ? NaN : v);
  const value = Float64Array.from(DATA.values[place], number);
  const n = DATA.n[place];
  return {
    value,
    low: value.map((v, i) => v - number(DATA.below[place][i])),
    high: value.map((v, i) => v + number(DATA.above[place][i])),
    n: typeof n === "number" ? MODELS.map(() => n) : n,
  };
}

// The mean over settings, missing where one is; its interval is the mean of theirs, its n the smallest.
function averageColumn(name) {
  const parts = DATA.averages[name].map(([place, weight]) => [column(DATA.settings[place]), weight]);
  const mean = (key) => MODELS.map((_, i) => parts.reduce((sum, [c, weight]) => sum + weight * c[key][i], 0));
  return { value: mean("value"), low: mean("low"), high: mean("high"), n: MODELS.map((_, i) => Math.min(...parts.map(([c]) => c.n[i]))) };
}

// All settings and averages in the order they are listed: the one without shift first, single severities last.
const SEVERITY = /^(.+\.[a-z_]+)\.[1-9](_[^.]+)?$/;
const SETTINGS = [
  ...new Set([
    DATA.start.x,
    ...Object.keys(DATA.averages),
    ...DATA.settings.filter((name) => !SEVERITY.test(name)),
    ...DATA.settings,
  ]),
];

function isKnown(setting) {
  return setting in DATA.averages || DATA.settings.includes(setting);
}

function percent(value, digits = 2) {
  if (!Number.isFinite(value)) return "–";
  return value.toFixed(digits) + DATA.unit;
}

function withInterval(c, i) {
  if (!Number.isFinite(c.value[i])) return "–";
  const interval = Number.isFinite(c.low[i]) ? ` [${c.low[i].toFixed(2)}, ${c.high[i].toFixed(2)}]` : "";
  return percent(c.value[i]) + interval;
}

// An element with properties and children; text is always text, never markup.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function typeColor(type) {
  return dark.matches ? DATA.types[type].dark : DATA.types[type].color;
}
