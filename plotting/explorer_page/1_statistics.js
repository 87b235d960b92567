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
  let different = false; // rounding may leave a tiny xx where all x are equal
  for (let i = 0; i < n; i += 1) {
    xx += (x[i] - meanX) ** 2;
    xy += (x[i] - meanX) * (y[i] - meanY);
    yy += (y[i] - meanY) ** 2;
    different ||= x[i] !== x[0];
  }
  const slope = different ? xy / xx : NaN;
  return { slope, intercept: meanY - slope * meanX, r2: yy > 0 ? (xy * xy) / (xx * yy) : NaN, n };
}

// The Mersenne Twister as numpy's RandomState seeds it, so that page and figures draw the same models.
function mersenneTwister(seed) {
  const state = new Uint32Array(624);
  state[0] = seed;
  for (let i = 1; i < 624; i += 1) state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
  let place = 624;
  return () => {
    if (place === 624) {
      for (let i = 0; i < 624; i += 1) {
        const bits = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
        state[i] = state[(i + 397) % 624] ^ (bits >>> 1) ^ (bits & 1 ? 0x9908b0df : 0);
      }
      place = 0;
    }
    let bits = state[place];
    place += 1;
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    return (bits ^ (bits >>> 18)) >>> 0;
  };
}

// RandomState(seed).randint(0, n): the lowest bits that can hold n - 1, drawn again while they are too large.
function wholeNumbers(seed, n) {
  const random = mersenneTwister(seed);
  let mask = 1;
  while (mask < n - 1) mask = 2 * mask + 1;
  return () => {
    let drawn = random() & mask;
    while (drawn > n - 1) drawn = random() & mask;
    return drawn;
  };
}

const FEWEST_FOR_BAND = 5; // of fewer models, many resamples have but two different ones

function resampledLines(x, y) {
  const draw = wholeNumbers(DATA.seed, x.length);
  const slopes = new Float64Array(DATA.resamples);
  const intercepts = new Float64Array(DATA.resamples);
  const n = x.length;
  const drawnX = new Float64Array(n);
  const drawnY = new Float64Array(n);
  for (let b = 0; b < DATA.resamples; b += 1) {
    for (let i = 0; i < n; i += 1) {
      const k = draw();
      drawnX[i] = x[k];
      drawnY[i] = y[k];
    }
    const line = leastSquares(drawnX, drawnY);
    slopes[b] = line.slope;
    intercepts[b] = line.intercept;
  }
  return { slopes, intercepts };
}

// The middle `confidence` of the draws, each end rounded outwards to a draw.
function middle(draws, confidence) {
  const sorted = Float64Array.from(draws.filter((v) => Number.isFinite(v))).sort();
  const tail = (100 * (1 - confidence)) / 2; // in the order of the Python statistics, to the last bit
  const last = sorted.length - 1;
  return [sorted[Math.floor((tail / 100) * last)], sorted[Math.ceil(((100 - tail) / 100) * last)]];
}

const countDifferent = (values) => new Set(values).size;

// Where 0 and 100 % are put on a logit axis: half an image of the smallest set inside.
function halfAnImage(counts) {
  const known = counts.filter((n) => n > 0);
  return known.length ? 50 / Math.max(Math.min(...known), 2) : 0.05;
}

// 0 and 100 have no place on the axis, but models without any accuracy under shift break the line in two.
function needsClip(x, y, axisName) {
  if (axisName === "linear") return false;
  if (x.some((v) => v === 0 || v === 100) || y.includes(100)) return true;
  if (!y.includes(0)) return false;
  const pivot = pivotOf(x, y);
  const sides = [x.filter((v, i) => v < pivot && y[i] !== 0), x.filter((v) => v > pivot)];
  return Math.min(...sides.map(countDifferent)) < 2;
}

function pivotOf(x, y) {
  return Math.max(...x.filter((_, i) => y[i] === 0));
}

// Percent in, percent out; `counts` are the images behind them. One line, or two about the best model that has nothing
// left under shift; null where fewer than 3 models differ. The rules are those of plotting/_lines.py.
function fitModels(x, y, axisName, counts) {
  if (countDifferent(x) < 3) return null;
  const axis = AXES[axisName];
  const clip = needsClip(x, y, axisName) ? halfAnImage(counts) : 0;
  const place = (v) => axis.to(Math.min(Math.max(v, clip), 100 - clip) / 100);
  const pieceOf = (rows) => {
    const tx = rows.map((i) => place(x[i]));
    const ty = rows.map((i) => place(y[i]));
    return { ...leastSquares(tx, ty), draws: resampledLines(tx, ty) };
  };
  const all = [...x.keys()];
  if (axisName === "linear" || clip > 0 || !y.includes(0)) {
    return { pivot: Infinity, n: x.length, pieces: [pieceOf(all)], axis };
  }
  const pivot = pivotOf(x, y);
  const below = all.filter((i) => x[i] < pivot && y[i] !== 0);
  const above = all.filter((i) => x[i] > pivot);
  return { pivot, n: below.length + above.length, pieces: [pieceOf(below), pieceOf(above)], axis };
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
