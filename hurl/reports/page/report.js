"use strict";
// Draws the charts of the page as SVG, from the data in the page. `state` holds all that a reader can change.

const data = JSON.parse(document.getElementById("data").textContent);
const tooltip = document.getElementById("tooltip");
const state = { axis: "steps", smoothing: 1, seeds: false, hidden: data.environments.map(() => new Set()) };
const MARGIN = { top: 10, right: 14, bottom: 42, left: 68 };

// --- small things ---------------------------------------------------------------------------------------------------

function element(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
  return `${+value.toPrecision(5)}`;
}

function exact(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 5 });
}

// Round numbers, about `count` of them, that cover a range.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(+(n * step).toPrecision(12));
  return found;
}

// The least and the greatest of numbers, with some room, and never an empty range.
function range(values, room) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return null;
  const margin = high > low ? room * (high - low) : Math.max(Math.abs(low) * 0.05, 0.05);
  return [low - margin, high + margin];
}

function scale([low, high], from, to) {
  return (value) => from + ((value - low) / (high - low)) * (to - from);
}

// Seconds are shown in the unit that suits the longest run of the environment.
function axisOf(variants) {
  if (state.axis === "steps") return { title: "environment steps", unit: 1 };
  if (state.axis === "iterations") return { title: "iterations", unit: 1 };
  const longest = Math.max(...variants.map((variant) => variant.x.time.at(-1)));
  if (longest >= 2 * 3600) return { title: "wall time (hours)", unit: 3600 };
  if (longest >= 2 * 60) return { title: "wall time (minutes)", unit: 60 };
  return { title: "wall time (seconds)", unit: 1 };
}

// --- frames ---------------------------------------------------------------------------------------------------------

function frame(place, height, margin) {
  const width = Math.max(place.clientWidth, 220);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  svg.setAttribute("aria-label", place.parentElement.querySelector("figcaption").textContent);
  place.replaceChildren(svg);
  return { svg, width, left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
}

function drawXAxis(box, x, limits, title) {
  for (const value of ticks(...limits, Math.max(3, Math.min(9, (box.right - box.left) / 85)))) {
    box.svg.append(
      element("line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }),
      element("text", { x: x(value), y: box.bottom + 16, "text-anchor": "middle" }, short(value)),
    );
  }
  box.svg.append(
    element("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    element("text", { class: "x-title", x: (box.left + box.right) / 2, y: box.bottom + 35, "text-anchor": "middle" }, title),
  );
}

function drawYAxis(box, y, limits, title) {
  for (const value of ticks(...limits, 5)) {
    box.svg.append(
      element("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      element("text", { x: box.left - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)),
    );
  }
  const middle = (box.top + box.bottom) / 2;
  const turned = { class: "y-title", x: 13, y: middle, transform: `rotate(-90 13 ${middle})`, "text-anchor": "middle" };
  box.svg.append(element("text", turned, title));
}

// --- curves ---------------------------------------------------------------------------------------------------------

// The mean of each number and those before it, as many as the reader wants; where there is none there is none.
function smooth(values) {
  if (!values || state.smoothing === 1) return values;
  return values.map((value, n) => {
    if (value === null) return null;
    const some = values.slice(Math.max(0, n + 1 - state.smoothing), n + 1).filter((other) => other !== null);
    return some.reduce((sum, other) => sum + other, 0) / some.length;
  });
}

// The points of a visible variant in one chart; a level is a line from side to side.
function pointsOf(variant, series, axis, limits) {
  const { middle, low, high } = { middle: smooth(series.middle), low: smooth(series.low), high: smooth(series.high) };
  const point = (x, n) => ({ x, n, middle: middle[n], low: low?.[n] ?? null, high: high?.[n] ?? null });
  const points = variant.level ? limits.map((x) => point(x, 0)) : variant.x[state.axis].map((x, n) => point(x / axis.unit, n));
  return points.filter((found) => (found.middle ?? null) !== null);
}

// The points of each seed, where a reader wants them and the page has them.
function seedsOf(variant, series, axis) {
  if (!state.seeds || !series.seeds) return [];
  return series.seeds.map((values) => pointsOf(variant, { middle: values }, axis, []));
}

function drawCurves(place) {
  const index = +place.dataset.environment, chart = place.dataset.chart;
  const environment = data.environments[index];
  const axis = axisOf(environment.variants);
  const box = frame(place, data.charts[chart].wide ? 340 : 230, MARGIN);
  const all = environment.variants.filter((variant) => !variant.level).flatMap((variant) => variant.x[state.axis]);
  const xLimits = [0, Math.max(...all, state.axis === "iterations" ? 1 : axis.unit) / axis.unit];
  const curves = environment.variants
    .filter((variant) => !state.hidden[index].has(variant.name) && variant.y[chart])
    .map((variant) => ({
      variant,
      points: pointsOf(variant, variant.y[chart], axis, xLimits),
      seeds: seedsOf(variant, variant.y[chart], axis),
    }))
    .filter((curve) => curve.points.length);
  const x = scale(xLimits, box.left, box.right);
  drawXAxis(box, x, xLimits, axis.title);
  const every = curves.flatMap((curve) => [...curve.points, ...curve.seeds.flat()]);
  const yLimits = range(every.flatMap((p) => [p.middle, p.low, p.high]), 0.04);
  if (yLimits === null) {
    const middle = { class: "empty", x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, "text-anchor": "middle" };
    box.svg.append(element("text", middle, "nothing to show"));
    return;
  }
  const y = scale(yLimits, box.bottom, box.top);
  drawYAxis(box, y, yLimits, data.charts[chart].label);
  for (const curve of curves) drawCurve(box, curve, x, y);
  followPointer(box, curves, x, axis);
}

function pathOf(points, x, y) {
  return points.map((p) => `${x(p.x).toFixed(1)},${y(p.middle).toFixed(1)}`).join(" ");
}

// A line in its band or, where single seeds are shown, among theirs.
function drawCurve(box, { variant, points, seeds }, x, y) {
  const group = element("g", { class: "curve", "data-variant": variant.name });
  const banded = points.filter((p) => p.low !== null && p.high !== null);
  for (const seed of seeds) {
    const thin = { class: "seed", fill: "none", stroke: variant.color, "stroke-width": 1, opacity: 0.55 };
    group.append(element("polyline", { points: pathOf(seed, x, y), ...thin }));
  }
  if (!seeds.length && banded.length > 1) {
    const outline = [...banded.map((p) => [p.x, p.high]), ...banded.toReversed().map((p) => [p.x, p.low])];
    const corners = outline.map(([px, py]) => `${x(px).toFixed(1)},${y(py).toFixed(1)}`).join(" ");
    group.append(element("polygon", { points: corners, fill: variant.color, opacity: 0.14 }));
  }
  const look = { fill: "none", stroke: variant.color, "stroke-width": 2, "stroke-dasharray": variant.dashes.join(" ") };
  group.append(points.length > 1 ? element("polyline", { points: pathOf(points, x, y), ...look })
    : element("circle", { cx: x(points[0].x), cy: y(points[0].middle), r: 3, fill: variant.color }));
  box.svg.append(group);
}

function nearestPoint(points, x) {
  return points.reduce((best, point) => (Math.abs(point.x - x) < Math.abs(best.x - x) ? point : best));
}

function followPointer(box, curves, x, axis) {
  const pointer = element("line", { class: "pointer", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const area = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
  const surface = element("rect", { class: "surface", ...area, fill: "transparent" });
  const everyX = curves.flatMap((curve) => (curve.variant.level ? [] : curve.points)).map((point) => ({ x: point.x }));
  surface.addEventListener("pointermove", (event) => {
    const outer = box.svg.getBoundingClientRect();
    const inside = ((event.clientX - outer.left) / outer.width) * box.width;
    const at = x(0) === x(1) ? 0 : (inside - x(0)) / (x(1) - x(0));
    const here = everyX.length ? nearestPoint(everyX, at).x : at;
    pointer.setAttribute("x1", x(here));
    pointer.setAttribute("x2", x(here));
    pointer.setAttribute("visibility", "visible");
    showTooltip(event, `${axis.title}: ${exact(here)}`, curves.map((curve) => valueRow(curve, here)));
  });
  surface.addEventListener("pointerleave", () => {
    pointer.setAttribute("visibility", "hidden");
    tooltip.hidden = true;
  });
  box.svg.append(pointer, surface);
}

// What a curve is at x; nothing where it has ended before or begins after.
function valueRow({ variant, points }, x) {
  const inside = variant.level || (x >= points[0].x - 1e-9 && x <= points.at(-1).x + 1e-9);
  if (!inside) return [variant.color, variant.name, "—", ""];
  const point = nearestPoint(points, x);
  const spread = point.low === null || point.high === null ? "" : `${exact(point.low)} to ${exact(point.high)}`;
  return [variant.color, variant.name, exact(point.middle), spread, variant.seeds ? countSeeds(variant.seeds[point.n]) : ""];
}

function countSeeds(seeds) {
  return `${seeds} seed${seeds === 1 ? "" : "s"}`;
}

function showTooltip(event, title, rows) {
  const heading = document.createElement("strong");
  heading.textContent = title;
  const table = document.createElement("table");
  for (const [color, ...cells] of rows) {
    const row = table.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
    const dot = document.createElement("i");
    dot.style.background = color;
    row.cells[0].prepend(dot);
  }
  tooltip.replaceChildren(heading, table);
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const beside = event.clientX + 18 + width < innerWidth ? event.clientX + 18 : event.clientX - 18 - width;
  tooltip.style.left = `${Math.max(4, beside)}px`;
  tooltip.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - height - 4))}px`;
}

// --- intervals ------------------------------------------------------------------------------------------------------

function drawIntervals(place, { title, neutral, rows }) {
  const longest = Math.max(...rows.map((row) => row.name.length), 4);
  const left = Math.min(20 + 7 * longest, place.clientWidth / 2);
  const box = frame(place, MARGIN.top + MARGIN.bottom + 34 * Math.max(rows.length, 1), { ...MARGIN, left });
  const limits = range([neutral, ...rows.flatMap((row) => [row.value, row.low, row.high])], 0.08);
  if (limits === null) return;
  const x = scale(limits, box.left, box.right);
  drawXAxis(box, x, limits, title);
  if (neutral !== null) {
    box.svg.append(element("line", { class: "neutral", x1: x(neutral), x2: x(neutral), y1: box.top, y2: box.bottom }));
  }
  rows.forEach((row, place) => {
    const y = box.top + 34 * (place + 0.5);
    const group = element("g", { class: "interval", "data-variant": row.name });
    group.append(element("text", { class: "name", x: box.left - 9, y: y + 4, "text-anchor": "end" }, row.name));
    if (row.low !== null) {
      const bar = { x1: x(row.low), x2: x(row.high), y1: y, y2: y, stroke: row.color, "stroke-width": 9, opacity: 0.35 };
      group.append(element("line", bar));
    }
    group.append(element("circle", { cx: x(row.value), cy: y, r: 5, fill: row.color }));
    const surface = { class: "surface", x: 0, y: y - 17, width: box.width, height: 34, fill: "transparent" };
    const listener = element("rect", surface);
    const spread = row.low === null ? "no interval" : `${exact(row.low)} to ${exact(row.high)}`;
    listener.addEventListener("pointermove", (event) => showTooltip(event, title, [[row.color, row.name, exact(row.value), spread]]));
    listener.addEventListener("pointerleave", () => (tooltip.hidden = true));
    group.append(listener);
    box.svg.append(group);
  });
}

// --- performance profiles -------------------------------------------------------------------------------------------

// A share stays what it is until the next score, so that its line has steps.
function drawProfiles(place) {
  const { scores, rows } = data.profiles;
  const box = frame(place, 260, MARGIN);
  const x = scale([0, 1], box.left, box.right), y = scale([-0.02, 1.02], box.bottom, box.top);
  drawXAxis(box, x, [0, 1], "score τ");
  drawYAxis(box, y, [0, 1], "share of runs above τ");
  const curves = rows.map((row) => {
    const point = (at, n) => ({ x: scores[at], n, middle: row.middle[n], low: row.low[n], high: row.high[n] });
    return { variant: row, seeds: [], points: scores.flatMap((_, n) => (n ? [point(n, n - 1), point(n, n)] : [point(0, 0)])) };
  });
  for (const curve of curves) drawCurve(box, curve, x, y);
  followPointer(box, curves, x, { title: "score" });
}

// --- the page -------------------------------------------------------------------------------------------------------

function draw(place) {
  const { chart, environment } = place.dataset;
  if (chart === "auc") drawIntervals(place, data.environments[+environment].auc);
  else if (chart === "profiles") drawProfiles(place);
  else if (chart.startsWith("score-")) drawIntervals(place, data.scores[+chart.slice(6)]);
  else drawCurves(place);
}

function drawAll(selector = ".chart") {
  document.querySelectorAll(selector).forEach(draw);
}

function makeLegend(section) {
  const index = +section.dataset.environment;
  for (const variant of data.environments[index].variants) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.variant = variant.name;
    button.setAttribute("aria-pressed", "true");
    const stroke = { stroke: variant.color, "stroke-width": 3, "stroke-dasharray": variant.dashes.join(" ") };
    const sample = element("svg", { width: 26, height: 10, "aria-hidden": true });
    sample.append(element("line", { x1: 0, x2: 26, y1: 5, y2: 5, ...stroke }));
    button.append(sample, `${variant.name} (${countSeeds(Math.max(...variant.seeds))})`);
    button.addEventListener("click", () => {
      const hidden = state.hidden[index];
      if (!hidden.delete(variant.name)) hidden.add(variant.name);
      button.setAttribute("aria-pressed", String(!hidden.has(variant.name)));
      drawAll(`.chart[data-environment="${index}"]`);
    });
    section.querySelector(".legend").append(button);
  }
}

document.querySelectorAll("section.environment").forEach(makeLegend);
document.querySelectorAll("input[name=axis]").forEach((input) => {
  input.checked = input.value === state.axis; // a browser may remember another from before a reload
  input.addEventListener("change", () => {
    state.axis = input.value;
    drawAll(".environment .chart");
  });
});
// Figures of success rates and of losses are there from the beginning, and seen once they are asked for.
function show(name, isShown) {
  if (name === "seeds") state.seeds = isShown;
  else document.body.classList.toggle(`with-${name}`, isShown);
  drawAll(".environment .chart");
}

document.querySelectorAll("input[type=checkbox]").forEach((input) => {
  input.checked = false;
  input.addEventListener("change", () => show(input.name, input.checked));
});
document.querySelectorAll("select[name=smoothing]").forEach((select) => {
  select.value = "1";
  select.addEventListener("change", () => {
    state.smoothing = +select.value;
    drawAll(".environment .chart");
  });
});
let width = 0;
addEventListener("resize", () => {
  if (width === innerWidth) return; // on telephones the height alone changes while scrolling
  width = innerWidth;
  drawAll();
});
width = innerWidth;
drawAll();
