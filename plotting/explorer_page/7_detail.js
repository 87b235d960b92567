// One model: where its numbers come from, and its row over all settings.

const detail = document.getElementById("detail");
let opener = null;

function choose(label) {
  opener = document.activeElement;
  change({ model: label });
  const close = detail.querySelector("button");
  if (close) close.focus({ preventScroll: true });
  if (matchMedia("(max-width: 800px)").matches) detail.scrollIntoView({ block: "start" });
}

function closeDetail() {
  change({ model: "" });
  if (opener && document.contains(opener)) opener.focus({ preventScroll: true });
}

function drawDetail(view) {
  const model = MODELS.find((m) => m.label === state.model);
  detail.hidden = !model;
  detail.replaceChildren();
  if (!model) return;
  const close = element("button", { type: "button", id: "close" }, "Close");
  close.addEventListener("click", closeDetail);
  const hide = element("button", { type: "button", id: "hide" }, "Hide this model");
  hide.addEventListener("click", () => change({ model: "", hiddenModels: [...state.hiddenModels, model.label] }));
  detail.append(element("h2", {}, model.name), element("div", { className: "buttons" }, close, hide), factList(model, view), rowTable(model));
}

function factList(model, view) {
  const rho = effectiveRobustness(view, model.index);
  const facts = [
    ["type", DATA.types[model.type].label],
    ["source", DATA.sources[model.source]],
    ["effective robustness", Number.isFinite(rho) ? `${rho.toFixed(2)} points` : "no line or no result"],
    ...DATA.facts[model.facts],
  ];
  return element("dl", {}, ...facts.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)]));
}

function rowTable(model) {
  const names = SETTINGS.filter((name) => isFoundSetting(name) && Number.isFinite(column(name).value[model.index]));
  const rows = names.map((name) => {
    const c = column(name);
    const button = element("button", { type: "button", title: `Show ${name} as y` }, name);
    button.addEventListener("click", () => change({ y: name }));
    const n = c.n[model.index];
    return element("tr", { className: name === state.x || name === state.y ? "chosen" : "" },
      element("td", { className: "text" }, button),
      element("td", {}, withInterval(c, model.index)),
      element("td", {}, n ? n.toLocaleString("en") : ""));
  });
  const head = element("tr", {}, element("th", { className: "text" }, "setting"), element("th", {}, DATA.metric), element("th", {}, "n"));
  return element("table", { id: "row" }, element("thead", {}, head), element("tbody", {}, ...rows));
}
