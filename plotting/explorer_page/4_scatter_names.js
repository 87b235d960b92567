// Names beside points: each in the nearest place where it covers no other name, no point and, if there is one, no line.

const NEAR = [9, 15];
const FAR = [...NEAR, 23, 34, 48, 66]; // for few names, which must be found
const AROUND = [20, 160, -20, -160, 55, 125, -55, -125, 90, -90, 0, 180].map((degrees) => (degrees * Math.PI) / 180);
const MANY = 60; // of more points the bars cover everything anyway

// Names of the chosen model, of few found ones, or of all.
function nameMarks(view, f) {
  const found = state.query === "" ? [] : view.shown.filter(isFound);
  const wanted = state.names ? view.shown : found.length <= 25 ? found : [];
  const chosen = view.shown.filter((m) => m.label === state.model);
  const labels = [...new Set([...chosen, ...wanted])];
  const points = [...drawn.at.values()].map(([x, y]) => [x - 2, y - 2, x + 2, y + 2]);
  const lines = view.shown.length <= MANY ? [...barBoxes(view, f), ...lineBoxes(view, f)] : [];
  const taken = [];
  const marks = [];
  for (const model of labels) {
    const at = drawn.at.get(model.index);
    const places = placesAround(at, 6.3 * model.label.length, labels.length <= 25 ? FAR : NEAR).filter(
      ({ box }) => box[0] >= f.box.left && box[2] <= f.box.right && box[1] >= f.box.top && box[3] <= f.box.bottom,
    );
    const clear = (boxes) => ({ box }) => !boxes.some((other) => overlap(box, other));
    const free = places.filter(clear(taken)).filter(clear(points));
    const place = free.find(clear(lines)) || free[0] || (chosen.includes(model) ? places.find(clear(taken)) : undefined);
    if (!place) continue;
    taken.push(place.box);
    const [left, , right, bottom] = place.box;
    if (place.radius > 12) marks.push(shape("path", { d: `M${at[0]} ${at[1]}L${place.end[0]} ${place.end[1]}`, class: "leader" }));
    marks.push(shape("text", { x: (left + right) / 2, y: bottom - 3, "text-anchor": "middle", class: "name" }, model.label));
  }
  return marks;
}

function placesAround([x, y], width, radii) {
  return radii.flatMap((radius) => AROUND.map((angle) => {
    const [across, up] = [Math.cos(angle), Math.sin(angle)];
    const end = [x + radius * across, y - radius * up];
    const middle = end[0] + (across * width) / 2;
    return { radius, end, box: [middle - width / 2, end[1] - 7, middle + width / 2, end[1] + 7] };
  }));
}

function overlap(one, other) {
  return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
}

function barBoxes(view, f) {
  if (!state.bars) return [];
  return view.shown.flatMap(({ index: i }) => {
    const [x, y] = drawn.at.get(i);
    const across = Number.isFinite(view.x.low[i]) ? [[f.px(view.x.low[i]), y - 1, f.px(view.x.high[i]), y + 1]] : [];
    const up = Number.isFinite(view.y.low[i]) ? [[x - 1, f.py(view.y.high[i]), x + 1, f.py(view.y.low[i])]] : [];
    return [...across, ...up];
  });
}

// Small boxes along the line of the fit.
function lineBoxes(view, f) {
  if (!view.fit) return [];
  const [from, to] = f.rangeX.map((v) => f.axis.to(v / 100));
  return Array.from({ length: 121 }, (_, k) => 100 * f.axis.from(from + ((to - from) * k) / 120)).map((x) => {
    const [px, py] = [f.px(x), f.py(predict(view.fit, x))];
    return [px - 5, py - 3, px + 5, py + 3];
  });
}
