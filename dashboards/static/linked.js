// Plots and tables of a page that show the same points: pointing at one marks it in all of them, and
// what is brushed in parallel coordinates becomes the condition of the table and the curves. Views
// are saved under a name. Loaded after pages.js, whose plots these are.
"use strict";

// ---- One pointer for all plots

const MARK_MS = 60;
let marked = "";

// The point, as the service names it, that a value of a plot belongs to; "" for none. A trace says in
// `meta` which points it shows, and how many values each has: 0 = all of them are one point's.
function pointOf({ data, pointNumber }) {
  const { points, each } = data.meta || {};
  if (!points) return "";
  return points[each ? Math.floor(pointNumber / each) : 0] || "";
}

function valuesOf(figure, key) {
  const found = { x: [], y: [], mode: "lines" };
  for (const { meta, x, y } of figure.data) {
    const at = meta?.points ? meta.points.indexOf(key) : -1;
    if (at < 0) continue;
    const mine = (values) => (meta.each ? values.slice(at * meta.each, (at + 1) * meta.each) : values);
    found.x.push(...mine(x), null);
    found.y.push(...mine(y), null);
    if (meta.each === 1) found.mode = "markers";
  }
  return found;
}

// Drawn by the last trace of the plot, which is empty otherwise. The axes stay where they are.
function markIn(element, key) {
  if (!element.figure?.data.some((trace) => trace.meta?.points)) return;
  const { x, y, mode } = valuesOf(element.figure, key);
  const { ink } = colours();
  const still = { "xaxis.autorange": false, "yaxis.autorange": false };
  Plotly.update(element, { x: [x], y: [y], mode, "line.color": ink, "marker.color": ink }, still, [element.data.length - 1]);
  if (key && x.length) element.dataset.marked = key;
  else delete element.dataset.marked;
}

let pointed = { key: "", source: null };
const markSoon = paced(MARK_MS, () => {
  const { key, source } = pointed;
  if (key === marked) return;
  marked = key;
  for (const row of document.querySelectorAll("tr[data-point]")) row.classList.toggle("marked", row.dataset.point === key);
  // The plot under the pointer shows its own label.
  for (const element of document.querySelectorAll("[data-plot]")) if (element.isNear && element !== source) markIn(element, key);
});

function mark(key, source = null) {
  pointed = { key, source };
  markSoon();
}

for (const kind of ["mouseover", "focusin"]) {
  document.addEventListener(kind, ({ target }) => {
    const row = target.closest?.("tr[data-point]");
    if (row) mark(row.dataset.point);
    else if (pointed.key && !pointed.source) mark("");
  });
}

// ---- Brush: boxes over the axes of parallel coordinates, as a condition on trials

const between = (value, a, b) => value >= Math.min(a, b) && value <= Math.max(a, b);

// A box beside an axis is meant for the nearest one.
function isOver(at, { x0, x1 }, count) {
  const inside = [...Array(count).keys()].filter((one) => between(one, x0, x1));
  if (inside.length) return inside.includes(at);
  return at === Math.min(count - 1, Math.max(0, Math.round((x0 + x1) / 2)));
}

function valueAt({ low, high, log }, place) {
  const value = log ? low * (high / low) ** place : low + place * (high - low);
  return String(Number(value.toPrecision(4)));
}

function conditionOn(axis, { y0, y1 }) {
  const { field, words, unused } = axis;
  const [low, high] = [Math.min(y0, y1), Math.max(y0, y1)];
  const some = [];
  if (words) {
    for (const [place, word] of words) if (between(place, low, high)) some.push(`${field} = ${word}`);
    if (some.length === words.length && unused === undefined) return "";
  } else if (high >= 0 && low <= 1) {
    const ends = [low > 0 ? `${valueAt(axis, low)} <= ` : "", high < 1 ? ` <= ${valueAt(axis, high)}` : ""];
    if (ends[0] || ends[1]) some.push(ends[0] ? ends.join(field) : `${field}${ends[1]}`);
    else if (unused === undefined) return "";
    else some.push(`${field} != none`);
  }
  if (unused !== undefined && between(unused, low, high)) some.push(`${field} = none`);
  return some.length > 1 ? `(${some.join(" or ")})` : some[0] || "";
}

function conditionOf(axes, boxes) {
  const parts = axes.map((axis, at) => {
    const mine = boxes.filter((box) => isOver(at, box, axes.length)).map((box) => conditionOn(axis, box));
    const some = [...new Set(mine.filter((part) => part))];
    return some.length > 1 ? `(${some.join(" or ")})` : some[0];
  });
  return parts.filter((part) => part).join(" and ");
}

// What is brushed goes behind what was typed.
let brush = "";

function brushed(element) {
  const box = document.getElementById("trials-where");
  const typed = brush && box.value.endsWith(brush) ? box.value.slice(0, -brush.length).replace(/ and $/, "") : box.value;
  brush = conditionOf(element.figure.brush, element.layout.selections || []);
  const asked = [typed.trim(), brush].filter((part) => part).join(" and ");
  if (asked === box.value) return;
  box.value = asked;
  box.form.requestSubmit();
}

// ---- The condition of the table is that of the plots

function filterPlots(where) {
  for (const button of document.querySelectorAll("[data-show-all]")) button.hidden = !where;
  for (const element of document.querySelectorAll("[data-plot][data-filtered]")) {
    const url = new URL(element.dataset.plot, location.href);
    if ((url.searchParams.get("where") || "") === where) continue;
    const links = [[element.dataset, "plot"]];
    const table = document.querySelector(`a[data-csv-of="${element.id}"]`);
    if (table) links.push([table, "href"]);
    for (const [holder, key] of links) {
      const address = new URL(holder[key], location.href);
      if (where) address.searchParams.set("where", where);
      else address.searchParams.delete("where");
      holder[key] = address.pathname + address.search;
    }
    if (element.drawing) draw(element);
  }
}

document.addEventListener("htmx:after:swap", (event) => {
  const answered = event.detail.ctx?.response?.raw?.url;
  if (answered && /\/parts\/trials/.test(answered)) filterPlots(new URL(answered).searchParams.get("where") || "");
});

document.addEventListener("click", ({ target }) => {
  if (!target.matches?.("[data-show-all]")) return;
  const box = document.getElementById("trials-where");
  brush = box.value = "";
  // It says that nothing is brushed any more, which changes nothing then.
  for (const element of document.querySelectorAll("[data-plot]")) if (element.figure?.brush) Plotly.relayout(element, { selections: [] });
  box.form.requestSubmit();
});

// ---- Each plot, when it is drawn for the first time

document.addEventListener("plot:new", ({ target: element }) => {
  element.on("plotly_hover", ({ points }) => {
    const key = pointOf(points[0]);
    if (key) mark(key, element);
  });
  element.on("plotly_unhover", () => mark("", element));
  if (!element.figure.brush) return;
  element.on("plotly_selected", () => brushed(element));
  element.on("plotly_deselect", () => brushed(element));
});

// ---- Views under a name

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-view]")) return;
  event.preventDefault();
  const { view, method, part } = form.dataset;
  const query = new URLSearchParams(location.search);
  // The page of a table is no part of a view: others have other rows there by then.
  for (const key of ["cursor", "trial_cursor"]) query.delete(key);
  const sent = method === "PUT" && { body: JSON.stringify({ query: query.toString() }), headers: { "Content-Type": "application/json" } };
  try {
    const response = await fetch(`${view}/${encodeURIComponent(form.elements.name.value.trim())}`, { method, ...sent });
    if (!response.ok) {
      const body = await response.json().catch(() => ({}));
      notice(body.detail || `The service answered ${response.status}.`);
      return;
    }
    notice(method === "PUT" ? "Saved." : "Deleted.");
    htmx.ajax("GET", part, { target: "#views", swap: "outerHTML" });
  } catch {
    notice(SILENT);
  }
});
