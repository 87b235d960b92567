// What is shown, to take along: a link to the view, and its numbers as a CSV file.

const byId = (id) => document.getElementById(id);

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    tell("link copied");
  } catch {
    // Not every browser lets a page from disk write to the clipboard.
    prompt("The link to this view:", location.href);
  }
}

function tell(words) {
  byId("told").textContent = words;
  setTimeout(() => { byId("told").textContent = ""; }, 3000);
}

function downloadCsv() {
  const lines = state.tab === "grid" ? gridLines() : viewLines(currentView());
  const text = lines.map((line) => line.map(csvCell).join(",")).join("\n") + "\n";
  const link = element("a", { download: `explorer-${state.tab}.csv`, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
  link.click();
  URL.revokeObjectURL(link.href);
  tell(`${counted(lines.length - 1, "model")} as CSV`);
}

// Two settings with intervals and images, and the distance to the line; in the order of the ranking.
function viewLines(view) {
  const numbers = (name, c) => [[name, `${name} low`, `${name} high`, `${name} n`], (i) => [c.value[i], c.low[i], c.high[i], c.n[i] || ""]];
  const [headX, cellsX] = numbers(state.x, view.x);
  const [headY, cellsY] = numbers(state.y, view.y);
  const rho = ["effective robustness", "effective robustness low", "effective robustness high"];
  return [
    ["model", "source", "type", ...headX, ...headY, ...rho],
    ...rankedRows(view).map((row) => [
      ...who(row.model), ...cellsX(row.model.index), ...cellsY(row.model.index), row.rho, ...row.interval,
    ]),
  ];
}

function gridLines() {
  return [
    ["model", "source", "type", ...table.columns],
    ...table.rows.map((m) => [...who(m), ...table.columns.map((name) => column(name).value[m.index])]),
  ];
}

function who(model) {
  return [model.name, DATA.sources[model.source], DATA.types[model.type].label];
}

// Text that a spreadsheet would run as a formula gets a ' before it; what is missing is empty.
function csvCell(cell) {
  if (typeof cell === "number") return Number.isFinite(cell) ? String(+cell.toFixed(6)) : "";
  const text = /^'*[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
