// Effective robustness of what is shown, best first, each with an interval over models and images.

const RANKED = [
  { key: "label", title: "model", text: true },
  { key: "rho", title: "points above the line" },
  { key: "x", title: "x" },
  { key: "y", title: "y" },
  { key: "type", title: "type", text: true },
];

function drawRanking(view) {
  const table = document.getElementById("ranking");
  const note = document.getElementById("ranking-note");
  if (!view.fit) {
    note.textContent = "No line: fewer than 3 standard models are shown that have both results.";
    table.replaceChildren();
    return;
  }
  note.textContent = `Points of ${state.y} above what the line expects of ${state.x}; intervals of ${100 * DATA.confidence} % over `
    + "resampled models and over images.";
  const body = element("tbody", {}, ...rankedRows(view).map(rankingRow));
  table.replaceChildren(rankingHead(rankingKey()), body);
  const found = state.query && body.querySelector("tr:not(.dim)");
  if (found) found.parentElement.parentElement.parentElement.scrollTop = found.offsetTop - 60;
}

function rankingKey() {
  return RANKED.some((c) => c.key === state.rank) ? state.rank : "rho";
}

// The models in sight in the order of the table; without a line they have no distance to it.
function rankedRows(view) {
  const rows = view.shown.map((m) => ({
    model: m, label: m.label, type: DATA.types[m.type].label, x: view.x.value[m.index], y: view.y.value[m.index],
    rho: effectiveRobustness(view, m.index), interval: view.fit ? rhoInterval(view, m.index) : [NaN, NaN],
  }));
  const key = rankingKey();
  return rows.sort((a, b) => (state.rankUp ? 1 : -1) * (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : 0));
}

function rankingHead(key) {
  const cells = RANKED.map((c) => {
    const button = element("button", { type: "button" }, c.title, sortMark(c.key === key, state.rankUp));
    button.addEventListener("click", () => change({ rank: c.key, rankUp: c.key === key ? !state.rankUp : Boolean(c.text) }));
    const sorted = c.key === key ? (state.rankUp ? "ascending" : "descending") : "none";
    return element("th", { className: c.text ? "text" : "", scope: "col", "aria-sort": sorted }, button);
  });
  return element("thead", {}, element("tr", {}, element("th", {}, "#"), ...cells));
}

function rankingRow(row, place) {
  const rho = `${row.rho >= 0 ? "+" : "−"}${Math.abs(row.rho).toFixed(2)}`;
  const interval = element("span", { className: "beside" }, ` [${row.interval.map((v) => v.toFixed(2)).join(", ")}]`);
  const classes = [row.label === state.model ? "chosen" : "", isFound(row.model) ? "" : "dim"];
  return element("tr", { className: classes.join(" ").trim() },
    element("td", {}, String(place + 1)),
    element("td", { className: "text" }, modelButton(row.model)),
    element("td", {}, element("b", {}, rho), interval),
    element("td", {}, percent(row.x)),
    element("td", {}, percent(row.y)),
    element("td", { className: "text kind", title: row.type }, typeMark(row.model.type), element("span", {}, row.type)));
}

// Which way a table is sorted by a column, or that it can be.
function sortMark(sorted, up) {
  return element("span", { className: sorted ? "mark sorted" : "mark", "aria-hidden": "true" }, sorted ? (up ? " ▲" : " ▼") : " ↕");
}

function modelButton(model) {
  const button = element("button", { type: "button" }, model.label);
  button.addEventListener("click", () => choose(model.label));
  return button;
}
