// Axes, fits and percentiles: the same rules as the Python statistics, so that both give the same line.

const AXES = {
  logit: { to: (p) => Math.log(p / (1 - p)), from: (t) => 1 / (1 + Math.exp(-t)) },
  probit: { to: probit, from: normalShare },
  linear: { to: (p) => p, from: (t) => t },
};

// The share of a standard normal below z: a series near 0, a continued fraction in the tails.
function normalShare(z) {
  const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  if (Math.abs(z) < 4) {
    let term = z;
    let sum = z;
    for (let k = 3; Math.abs(term) > 1e-17 * Math.abs(sum) && k < 400; k += 2) {
      term *= (z * z) / k;
      sum += term;
    }
    return 0.5 + density * sum;
  }
  let fraction = Math.abs(z);
  for (let k = 40; k > 0; k -= 1) fraction = Math.abs(z) + k / fraction;
  return z < 0 ? density / fraction : 1 - density / fraction;
}

// Its inverse, by Newton's steps from the logit.
function probit(p) {
  let z = Math.log(p / (1 - p)) / 1.7;
  for (let i = 0; i < 30; i += 1) {
    const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
    const step = (normalShare(z) - p) / Math.max(density, 1e-300);
    z -= Math.max(-1, Math.min(1, step));
    if (Math.abs(step) < 1e-13) break;
  }
  return z;
}

function leastSquares(x, y) {
  const n = x.length;
  let meanX = 0;
  let meanY = 0;
  for (let i = 0; i < n; i += 1) {
    meanX += x[i] / n;
    meanY += y[i] / n;
  }
  let xx = 0;
  let xy = 0;
  let yy = 0;
  for (let i = 0; i < n; i += 1) {
    xx += (x[i] - meanX) ** 2;
    xy += (x[i] - meanX) * (y[i] - meanY);
    yy += (y[i] - meanY) ** 2;
  }
  const slope = xy / xx;
  return { slope, intercept: meanY - slope * meanX, r2: yy > 0 ? (xy * xy) / (xx * yy) : NaN, n };
}

// A small generator with a seed: the same view shows the same band.
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const RESAMPLES = 500;
const FEWEST_FOR_BAND = 5; // of fewer models, many resamples have but two different ones

function resampledLines(x, y) {
  const random = randomNumbers(720257663);
  const slopes = new Float64Array(RESAMPLES);
  const intercepts = new Float64Array(RESAMPLES);
  const n = x.length;
  const drawnX = new Float64Array(n);
  const drawnY = new Float64Array(n);
  for (let b = 0; b < RESAMPLES; b += 1) {
    for (let i = 0; i < n; i += 1) {
      const k = Math.floor(random() * n);
      drawnX[i] = x[k];
      drawnY[i] = y[k];
    }
    const line = leastSquares(drawnX, drawnY);
    slopes[b] = line.slope;
    intercepts[b] = line.intercept;
  }
  return { slopes, intercepts };
}

// The middle `confidence` of the draws.
function middle(draws, confidence) {
  const sorted = Float64Array.from(draws.filter((v) => Number.isFinite(v))).sort();
  const tail = ((1 - confidence) / 2) * (sorted.length - 1);
  return [sorted[Math.floor(tail)], sorted[Math.ceil(sorted.length - 1 - tail)]];
}

// Percent in, percent out. One line, or two about the best model that has nothing left under shift.
function fitModels(x, y, axisName) {
  const axis = AXES[axisName];
  const edge = (v) => axisName !== "linear" && (v <= 0 || v >= 100);
  const zero = axisName === "linear" ? [] : x.filter((_, i) => y[i] === 0);
  const good = [...x.keys()].filter((i) => !edge(x[i]) && !edge(y[i]));
  const pieceOf = (rows) => {
    const tx = rows.map((i) => axis.to(x[i] / 100));
    const ty = rows.map((i) => axis.to(y[i] / 100));
    return { ...leastSquares(tx, ty), draws: resampledLines(tx, ty) };
  };
  const different = (rows) => new Set(rows.map((i) => x[i])).size;
  if (zero.length) {
    const pivot = Math.max(...zero);
    const below = good.filter((i) => x[i] < pivot);
    const above = good.filter((i) => x[i] > pivot);
    if (different(below) > 1 && different(above) > 1) {
      return { pivot, n: below.length + above.length, pieces: [pieceOf(below), pieceOf(above)], axis };
    }
  }
  return different(good) < 3 ? null : { pivot: Infinity, n: good.length, pieces: [pieceOf(good)], axis };
}

function pieceAt(fit, x) {
  return x > fit.pivot ? fit.pieces[1] : fit.pieces[0];
}

function predict(fit, x) {
  const piece = pieceAt(fit, x);
  return 100 * fit.axis.from(piece.intercept + piece.slope * fit.axis.to(x / 100));
}

// Round percentages for an axis: the roundest first, finer ones where more than a quarter has none.
function percentTicks(low, high, axis, gap) {
  const from = axis.to(low / 100);
  const span = axis.to(high / 100) - from;
  const chosen = new Map();
  for (const step of [10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01]) {
    const edges = [0, ...[...chosen.values()].sort((a, b) => a - b), 1];
    const bare = edges.slice(1).map((b, i) => [edges[i], b]).filter(([a, b]) => b - a > 0.25);
    if (!bare.length) break;
    for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i += 1) {
      const tick = Number((i * step).toFixed(6));
      if (axis !== AXES.linear && (tick <= 0 || tick >= 100)) continue;
      const place = (axis.to(tick / 100) - from) / span;
      const far = [...chosen.values()].every((other) => Math.abs(place - other) >= gap);
      if (far && bare.some(([a, b]) => a <= place && place <= b)) chosen.set(tick, place);
    }
  }
  return [...chosen.keys()].sort((a, b) => a - b);
}
