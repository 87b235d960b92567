// The controls, and the one function that brings the page in line with the state.

const TABS = ["scatter", "ranking", "grid"];

// The settings that are searched for, in groups; the chosen one is always among them.
function fillSettings(select, chosen) {
  const groups = new Map();
  for (const name of SETTINGS.filter((name) => isFoundSetting(name) || name === chosen)) {
    const severe = SEVERITY.exec(name);
    const group = name in DATA.averages ? "averages" : severe ? severe[1] + (severe[2] || "") : "settings";
    groups.set(group, [...(groups.get(group) || []), name]);
  }
  const order = [...groups.keys()].sort((a, b) => (b === "settings") - (a === "settings") || (b === "averages") - (a === "averages"));
  select.replaceChildren(...order.map((label) => element("optgroup", { label }, ...groups.get(label).map((name) => element("option", { value: name }, name)))));
}

function checkbox(label, swatch, list, item) {
  const box = element("input", { type: "checkbox" });
  box.dataset.list = list;
  box.dataset.item = item;
  box.addEventListener("change", () => change({ [list]: toggled(state[list], item, box.checked) }));
  return element("label", {}, box, ...swatch, label);
}

function fillLegend() {
  const legend = byId("legend");
  DATA.types.forEach((type, place) => {
    const count = MODELS.filter((m) => m.type === place).length;
    legend.append(checkbox(`${type.label} (${count})`, [typeMark(place)], "hiddenTypes", type.tag));
  });
  if (DATA.sources.length < 2) return;
  const sources = DATA.sources.map((source) => checkbox(source === "own" ? "own results" : source, [], "hiddenSources", source));
  legend.append(element("span", { className: "sources" }, ...sources));
}

function showControls() {
  // A control that would do nothing in this view is not there.
  for (const part of document.querySelectorAll("[data-tabs]")) part.hidden = !part.dataset.tabs.split(" ").includes(state.tab);
  for (const id of ["x", "y"]) fillSettings(byId(id), state[id]);
  const found = SETTINGS.filter(isFoundSetting).length;
  byId("found-settings").textContent = state.columns === "" ? "" : `${found} of ${SETTINGS.length}`;
  for (const id of ["x", "y", "axis", "min", "query", "columns"]) if (byId(id).value !== state[id]) byId(id).value = state[id];
  for (const id of ["only", "bars", "names"]) byId(id).checked = state[id];
  for (const box of byId("legend").querySelectorAll("input")) box.checked = !state[box.dataset.list].includes(box.dataset.item);
  for (const mark of byId("legend").querySelectorAll("svg")) mark.style.fill = typeColor(Number(mark.dataset.type));
  for (const tab of TABS) {
    byId(`tab-${tab}`).setAttribute("aria-selected", String(tab === state.tab));
    byId(`tab-${tab}`).tabIndex = tab === state.tab ? 0 : -1;
    byId(`view-${tab}`).hidden = tab !== state.tab;
  }
  const hidden = state.hiddenModels.map((label) => {
    const button = element("button", { type: "button" }, `show ${label}`);
    button.addEventListener("click", () => change({ hiddenModels: toggled(state.hiddenModels, label, true) }));
    return button;
  });
  byId("hidden-models").replaceChildren(...hidden);
}

function showFit(view) {
  const told = byId("fit");
  const { fit } = view;
  if (!fit) {
    told.textContent = `${counted(view.shown.length, "model")}. No line: fewer than 3 standard models are shown that have both results.`;
    return;
  }
  const parts = [`${counted(view.shown.length, "model")}. Line through `, element("b", { id: "fit-n" }, String(fit.n)), ` standard models (${state.axis}): `];
  fit.pieces.forEach((piece, k) => {
    const [low, high] = middle(piece.draws.slopes, DATA.confidence);
    if (fit.pieces.length > 1) parts.push(k ? "; above: " : `in two pieces about ${percent(fit.pivot)}. Below: `);
    parts.push("slope ", element("b", { id: k ? "fit-slope-above" : "fit-slope" }, piece.slope.toFixed(4)));
    if (piece.n >= FEWEST_FOR_BAND) parts.push(` [${low.toFixed(3)}, ${high.toFixed(3)}]`);
    parts.push(", intercept ", element("b", { id: k ? "fit-intercept-above" : "fit-intercept" }, piece.intercept.toFixed(4)));
    parts.push(", r² ", element("b", { id: k ? "fit-r2-above" : "fit-r2" }, piece.r2.toFixed(4)));
  });
  told.replaceChildren(...parts);
}

function render() {
  const start = performance.now();
  showControls();
  const view = currentView();
  showFit(view);
  drawDetail(view); // before the plot, which takes the room that is left
  if (state.tab === "scatter") drawScatter(view);
  if (state.tab === "ranking") drawRanking(view);
  if (state.tab === "grid") drawGrid();
  document.body.dataset.renderMs = (performance.now() - start).toFixed(1);
}

function listen() {
  for (const id of ["x", "y", "axis"]) byId(id).addEventListener("change", () => change({ [id]: byId(id).value }));
  for (const id of ["min", "query", "columns"]) byId(id).addEventListener("input", () => change({ [id]: byId(id).value }));
  for (const id of ["only", "bars", "names"]) byId(id).addEventListener("change", () => change({ [id]: byId(id).checked }));
  byId("copy-link").addEventListener("click", copyLink);
  byId("download").addEventListener("click", downloadCsv);
  byId("swap").addEventListener("click", () => change({ x: state.y, y: state.x }));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const tab of TABS) byId(`tab-${tab}`).addEventListener("click", () => change({ tab }));
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: TABS.length - 1 }[event.key];
    if (!step) return;
    change({ tab: TABS[(TABS.indexOf(state.tab) + step) % TABS.length] });
    byId(`tab-${state.tab}`).focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.model) closeDetail();
  });
  window.addEventListener("hashchange", () => {
    readAddress();
    render();
  });
  let pending = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(render);
  });
  dark.addEventListener("change", render);
}

byId("summary").textContent = DATA.summary;
fillLegend();
listen();
readAddress();
render();
