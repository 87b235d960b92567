// The grid of models x settings: only the cells in sight exist, so that 340 x 213 scroll smoothly.

const grid = document.getElementById("grid");
// `side` is as wide as the longest name, of about `letter` pixels each beside a mark, where it has room up to `most`.
const CELL = { width: 74, height: 22, letter: 6.4, mark: 34, most: 300, head: 78 };
const SCROLLBAR = 18;
let table = { rows: [], columns: [], side: 0 };

function drawGrid() {
  const columns = SETTINGS.filter(isFoundSetting);
  const rows = MODELS.filter((m) => isWanted(m) && isFound(m));
  const by = column(sortedBy()).value;
  const sign = state.up ? 1 : -1;
  const sortable = (m) => (Number.isFinite(by[m.index]) ? by[m.index] : sign * Infinity);
  rows.sort((a, b) => sign * (sortable(a) - sortable(b)) || a.index - b.index);
  const longest = Math.max(0, ...rows.map((m) => m.label.length));
  table = { rows, columns, side: Math.min(CELL.most, CELL.mark + CELL.letter * longest) };
  // No taller than its rows.
  grid.style.height = `min(72vh, ${CELL.head + rows.length * CELL.height + SCROLLBAR}px)`;
  document.getElementById("grid-note").textContent = `${counted(rows.length, "model")} x ${counted(columns.length, "setting")}, sorted by ${sortedBy()}; a click on a setting sorts by it.`;
  fillGrid();
}

// The setting that rows are sorted by: the one without shift, until another is clicked.
function sortedBy() {
  return isKnown(state.sort) ? state.sort : DATA.start.x;
}

function fillGrid() {
  const { rows, columns } = table;
  const side = Math.min(table.side, grid.clientWidth * 0.4);
  const left = grid.scrollLeft;
  const top = grid.scrollTop;
  const firstRow = Math.max(0, Math.floor(top / CELL.height));
  const lastRow = Math.min(rows.length, firstRow + Math.ceil(grid.clientHeight / CELL.height) + 1);
  const firstColumn = Math.max(0, Math.floor(left / CELL.width));
  const lastColumn = Math.min(columns.length, firstColumn + Math.ceil(grid.clientWidth / CELL.width) + 1);
  const room = element("div");
  room.style.width = `${side + columns.length * CELL.width}px`;
  room.style.height = `${CELL.head + rows.length * CELL.height}px`;
  const parts = [room];
  for (let c = firstColumn; c < lastColumn; c += 1) {
    const x = side + c * CELL.width;
    parts.push(placed(headCell(columns[c]), x, top, CELL.width, CELL.head));
    const { value } = column(columns[c]);
    for (let r = firstRow; r < lastRow; r += 1) {
      parts.push(placed(numberCell(value[rows[r].index]), x, CELL.head + r * CELL.height, CELL.width, CELL.height));
    }
  }
  for (let r = firstRow; r < lastRow; r += 1) {
    parts.push(placed(sideCell(rows[r]), left, CELL.head + r * CELL.height, side, CELL.height));
  }
  parts.push(placed(element("div", { className: "corner" }, `by ${sortedBy()} ${state.up ? "▲" : "▼"}`), left, top, side, CELL.head));
  grid.replaceChildren(...parts);
}

function placed(cell, x, y, width, height) {
  cell.style.left = `${x}px`;
  cell.style.top = `${y}px`;
  cell.style.width = `${width}px`;
  cell.style.height = `${height}px`;
  return cell;
}

function headCell(name) {
  const sorted = name === sortedBy();
  const told = sorted ? `${name}: sorted ${state.up ? "ascending" : "descending"}` : `${name}: sort by it`;
  const button = element("button", { type: "button", title: told }, name, sortMark(sorted, state.up));
  button.addEventListener("click", () => change({ sort: name, up: sorted ? !state.up : false }));
  return element("div", { className: sorted ? "head sorted" : "head" }, button);
}

function sideCell(model) {
  const button = element("button", { type: "button", title: model.label }, typeMark(model.type), model.label);
  button.addEventListener("click", () => choose(model.label));
  const cell = element("div", { className: "side" }, button);
  cell.style.borderLeftColor = typeColor(model.type);
  return cell;
}

function numberCell(value) {
  if (!Number.isFinite(value)) return element("div", { className: "cell none" }, "·");
  const cell = element("div", { className: "cell" }, value.toFixed(1));
  const share = Math.min(Math.max(value / DATA.most, 0), 1);
  cell.style.background = `hsl(${260 - 205 * share} 55% ${24 + 46 * share}%)`;
  cell.style.color = share > 0.55 ? "#101010" : "#f4f4f4";
  return cell;
}

let waiting = false;
grid.addEventListener("scroll", () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    fillGrid();
  });
});
