// What a page does beyond htmx: draws its plots in the page's colours, follows the sweep's events,
// and shows the outcome of an action. Plots are fetched when they come near the screen.
"use strict";

// Plots and the result table read every point of a sweep; the other parts read one page of it.
const REDRAW_WHOLE_MS = 2000;
const REFRESH_PARTS_MS = 500;

// ---- Plots

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const { fontFamily } = getComputedStyle(document.body);
  return { paper: value("paper"), ink: value("ink"), soft: value("soft"), grid: value("grid"), line: value("strong-line"), family: fontFamily };
};
// Images are for papers and slides: dark ink on white in every theme of the page.
const PRINTED = { paper: "#ffffff", ink: "#1a2029", soft: "#545e6b", grid: "#e9ecf0", line: "#b9c1cb", family: "Helvetica, Arial, sans-serif" };

function inColours(layout, c = colours()) {
  const axis = { gridcolor: c.grid, linecolor: c.line, tickcolor: c.line, zerolinecolor: c.grid };
  const themed = {
    ...layout,
    paper_bgcolor: c.paper,
    plot_bgcolor: c.paper,
    font: { family: c.family, size: 12.5, color: c.ink },
    hoverlabel: { bgcolor: c.paper, bordercolor: c.line, font: { color: c.ink } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: c.soft, activecolor: c.ink, orientation: "h" },
  };
  // Labels on a plot stay readable where lines pass under them.
  if (layout.annotations) themed.annotations = layout.annotations.map((label) => ({ bgcolor: c.paper, ...label }));
  for (const key of Object.keys(layout).filter((k) => /^[xy]axis/.test(k))) {
    themed[key] = { ...axis, ...layout[key] };
  }
  return themed;
}

const CONFIG = {
  responsive: true,
  displaylogo: false,
  displayModeBar: true,
  // No button that sends the chart to another host.
  showSendToCloud: false,
  // The buttons above the plot save it.
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud", "toImage"],
};

// A plot whose traces say which points they show (`meta`) has one more, which marks the point under
// the pointer; see linked.js.
const MARK = { type: "scatter", x: [null], y: [null], mode: "markers", hoverinfo: "skip", showlegend: false, line: { width: 3.5 }, marker: { symbol: "circle-open", size: 13, line: { width: 2.5 } } };

function tracesOf({ data }) {
  return data.some((trace) => trace.meta?.points) ? [...data, { ...MARK }] : data;
}

// Brushing is for pointers that can also scroll; others switch it on above the plot.
function configOf({ brush }) {
  return brush ? { ...CONFIG, modeBarButtonsToAdd: ["select2d"], modeBarButtonsToRemove: CONFIG.modeBarButtonsToRemove.filter((one) => one !== "select2d") } : CONFIG;
}

function layoutOf({ layout, brush }, c) {
  const themed = inColours(layout, c);
  if (brush) Object.assign(themed, { dragmode: matchMedia("(pointer: coarse)").matches ? false : "select", selectdirection: "d" });
  return themed;
}

function clear(element) {
  if (element.classList.contains("js-plotly-plot")) Plotly.purge(element);
  element.replaceChildren();
}

function say(element, text) {
  clear(element);
  const message = document.createElement("p");
  message.className = "plot-message";
  message.textContent = text;
  element.replaceChildren(message);
  offerImages(element, false);
}

// Drawing a plot takes a tenth of a second or more, and ten requests at once would delay all of
// them. So at most a few are in progress, and plots nearest to the visible part come first.
const LANES = 2;
const waiting = new Map();
let lanes = 0;

// Resolves when the plot shows the values that the service had at the time of the request.
function draw(element) {
  element.drawing = (element.drawing || 0) + 1;
  let mine = waiting.get(element);
  if (!mine) {
    mine = {};
    mine.done = new Promise((resolve) => (mine.resolve = resolve));
    waiting.set(element, mine);
    if (lanes < LANES) driveLane();
  }
  return mine.done;
}

async function driveLane() {
  lanes += 1;
  // Lets a caller request several plots before the first one is drawn.
  await null;
  while (waiting.size) {
    const element = [...waiting.keys()].reduce((best, one) => (distance(one) < distance(best) ? one : best));
    const mine = waiting.get(element);
    waiting.delete(element);
    // If one plot cannot be drawn, the others still are.
    await fetchAndDraw(element).catch((error) => console.error(error));
    mine.resolve();
    await new Promise((resume) => setTimeout(resume)); // clicks and scrolling come first
  }
  lanes -= 1;
}

// Pixels between an element and the visible part of the page; 0 for a visible element.
function distance(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return Math.max(0, top - innerHeight, -bottom);
}

async function fetchAndDraw(element) {
  const request = element.drawing;
  let answer;
  try {
    const response = await fetch(element.dataset.plot, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`the service answered ${response.status}`);
    answer = await response.json();
  } catch (error) {
    if (!element.figure) say(element, `This plot could not be loaded (${error.message}). Reload the page to try again.`);
    return;
  }
  if (request !== element.drawing) return; // a newer request is on its way
  if (answer.empty) {
    element.figure = null;
    say(element, answer.empty);
    return;
  }
  const isNew = !element.figure;
  if (isNew) clear(element);
  element.figure = answer;
  await Plotly.react(element, tracesOf(answer), layoutOf(answer), configOf(answer));
  if (isNew) element.dispatchEvent(new CustomEvent("plot:new", { bubbles: true }));
  element.dataset.drawn = String(request);
  offerImages(element, true);
}

// Show the buttons that save a plot as an image while there is a plot. The keyboard reaches them,
// unlike the buttons that plotly draws.
function offerImages(element, isDrawn) {
  for (const button of document.querySelectorAll(`button[data-of="${element.id}"]`)) button.hidden = !isDrawn;
}

function saveImage(button) {
  const element = document.getElementById(button.dataset.of);
  const { data, layout, name } = element.figure;
  const { width, height } = element.getBoundingClientRect();
  const printed = { ...inColours(layout, PRINTED), width, height };
  const format = button.dataset.image;
  return Plotly.downloadImage({ data, layout: printed }, { format, filename: name, width, height, scale: format === "png" ? 2 : 1 });
}

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      entry.target.isNear = entry.isIntersecting;
      if (entry.isIntersecting && (!entry.target.drawing || entry.target.isStale)) {
        entry.target.isStale = false;
        draw(entry.target);
      }
    }
  },
  { rootMargin: "300px" },
);

// Whoever prints a page or captures all of it wants every plot. So the rest is drawn once the visible
// ones are there and nothing else is to be done. Plots in a folded section are not asked for.
const whenIdle = window.requestIdleCallback || ((action) => setTimeout(action, 500));

function drawRest() {
  const rest = [...document.querySelectorAll("[data-plot]")].filter((e) => (!e.drawing || e.isStale) && e.offsetParent);
  for (const element of rest) {
    element.isStale = false;
    draw(element);
  }
}
addEventListener("load", () => setTimeout(() => whenIdle(drawRest, { timeout: 4000 }), 600));

// Print: every plot in dark ink and as wide as its card is on paper.
function fitToPaper(isPaper) {
  for (const element of document.querySelectorAll("[data-plot]")) {
    if (!element.figure) continue;
    const layout = layoutOf(element.figure, isPaper ? PRINTED : colours());
    if (isPaper) Object.assign(layout, { width: PAPER_WIDTH, autosize: false });
    Plotly.react(element, tracesOf(element.figure), layout, { ...configOf(element.figure), responsive: !isPaper });
  }
}
// Pixels between the margins of a sheet of A4 or Letter.
const PAPER_WIDTH = 680;
addEventListener("beforeprint", () => fitToPaper(true));
addEventListener("afterprint", () => fitToPaper(false));

function redrawPlots() {
  for (const element of document.querySelectorAll("[data-plot][data-live]")) {
    if (element.isNear) draw(element);
    else element.isStale = true;
  }
}

// The address of the page holds what was chosen, so that it can be kept and sent.
function keepView(key, value) {
  const url = new URL(location.href);
  url.searchParams.set(key, value);
  history.replaceState(history.state, "", url);
}

function choosePlots(select) {
  for (const id of select.dataset.plotSelect.split(" ")) choosePlot(select, document.getElementById(id));
  keepView(select.dataset.key, select.value);
}

function choosePlot(select, element) {
  const change = (address) => {
    const url = new URL(address, location.href);
    url.searchParams.set(select.name, select.value);
    return url.pathname + url.search;
  };
  element.dataset.plot = change(element.dataset.plot);
  element.figure = null;
  draw(element);
  const table = document.querySelector(`a[data-csv-of="${element.id}"]`);
  if (table) table.setAttribute("href", change(table.getAttribute("href")));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of document.querySelectorAll("[data-plot]")) {
    if (element.figure) Plotly.react(element, tracesOf(element.figure), layoutOf(element.figure), configOf(element.figure));
  }
});

// ---- Live

// Runs at once, then at most every `ms`, and always once more after the last call.
function paced(ms, action) {
  let timer = null;
  let again = false;
  const run = () => {
    again = false;
    action();
    timer = setTimeout(() => {
      timer = null;
      if (again) run();
    }, ms);
  };
  return () => {
    if (timer === null) run();
    else again = true;
  };
}

const refreshParts = paced(REFRESH_PARTS_MS, () => document.body.dispatchEvent(new CustomEvent("live")));
const refreshWhole = paced(REDRAW_WHOLE_MS, () => {
  document.body.dispatchEvent(new CustomEvent("live-whole"));
  redrawPlots();
});

let stream = null;
let light = { state: "", text: "not live" };

// The light is in a part of the page that is replaced, and absent while nothing runs.
function showLight() {
  const element = document.getElementById("live");
  if (!element) return;
  element.dataset.state = light.state;
  element.textContent = light.text;
}

function turnLight(state, text) {
  light = { state, text };
  showLight();
}

function follow() {
  const source = document.querySelector("[data-events]");
  if (!source || (stream && stream.readyState !== EventSource.CLOSED)) return;
  const events = (stream = new EventSource(source.dataset.events));
  const refresh = () => {
    refreshParts();
    refreshWhole();
  };
  events.onopen = () => turnLight("open", "live");
  events.onerror = () => turnLight("waiting", events.readyState === EventSource.CLOSED ? "not live: reload the page" : "reconnecting");
  for (const kind of ["message", "sweep", "trial", "progress", "result"]) events.addEventListener(kind, refresh);
  // The sweep is finished. The browser would reopen a stream that is not closed here.
  events.addEventListener("end", () => {
    events.close();
    refresh();
  });
}
// Once, even if the page starts to follow several times.
addEventListener("pagehide", () => stream?.close());

// ---- Actions

// Values of an action's form, as the API reads them; null for a plain button.
function asked(form) {
  const fields = [...form.elements].filter((field) => field.name);
  const value = (field) => {
    if (field.type === "number") return Number(field.value);
    const words = field.value.split(",").map((word) => word.trim());
    return "words" in field.dataset ? words.filter((word) => word) : field.value;
  };
  return fields.length ? Object.fromEntries(fields.map((field) => [field.name, value(field)])) : null;
}

async function act(form, event) {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const body = asked(form);
    const response = await fetch(form.dataset.action, {
      method: form.dataset.method || "POST",
      ...(body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
    });
    if (response.ok) {
      notice(form.dataset.done);
      form.closest("details")?.removeAttribute("open");
      // Go to the sweep that the action created.
      const made = response.status === 201 && response.headers.get("Location");
      if (made) location.assign(made.replace("/api/v1", ""));
      // A finished sweep may continue.
      follow();
    } else {
      const body = await response.json().catch(() => ({}));
      notice(body.detail || `The service answered ${response.status}.`);
    }
    // After a refusal too: another user may have changed the sweep.
    refreshParts();
  } catch {
    notice(SILENT);
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-action]")) act(event.target, event);
});
document.addEventListener("click", (event) => {
  if (event.target.matches("button[data-image]")) saveImage(event.target);
});
document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-plot-select]")) choosePlots(event.target);
});

// ---- Sections: folded as they were left, on every page of the kind; the bar shows where one is.

const FOLDS = `folds:${location.pathname.replace(/[0-9a-f]{12}|\d+$/g, "*")}`;

function folded() {
  try {
    return new Set(JSON.parse(localStorage.getItem(FOLDS) || "[]"));
  } catch {
    return new Set(); // storage is switched off, or holds something else
  }
}

function applyFolds() {
  const closed = folded();
  const asked = document.getElementById(location.hash.slice(1));
  for (const part of document.querySelectorAll(".fold")) part.open = !closed.has(part.id) || part.contains(asked);
}

function unfold(target) {
  target?.closest(".fold")?.setAttribute("open", "");
}

document.addEventListener(
  "toggle",
  ({ target }) => {
    if (!target.matches(".fold")) return;
    const closed = folded();
    if (target.open) closed.delete(target.id);
    else closed.add(target.id);
    try {
      localStorage.setItem(FOLDS, JSON.stringify([...closed]));
    } catch {
      // Then they are open again on the next page.
    }
  },
  true,
);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link) unfold(document.getElementById(link.hash.slice(1)));
});

function markSection() {
  const links = [...document.querySelectorAll(".contents a")];
  const top = (link) => document.getElementById(link.hash.slice(1))?.getBoundingClientRect().top ?? Infinity;
  const passed = links.filter((link) => top(link) < 120);
  const here = innerHeight + scrollY >= document.documentElement.scrollHeight - 4 ? links.at(-1) : passed.at(-1);
  for (const link of links) {
    if (link === here) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const bar = links[0]?.closest("ul");
  if (bar) bar.scrollLeft = here ? here.offsetLeft - bar.offsetLeft - bar.clientWidth / 3 : 0;
}
const follows = paced(100, markSection);
addEventListener("scroll", follows, { passive: true });

// A new part of the page may contain plots and the light; watched elements stay watched.
function takeIn() {
  applyFolds();
  follows();
  for (const element of document.querySelectorAll("[data-plot]")) near.observe(element);
  showLight();
}
document.addEventListener("htmx:after:swap", takeIn);
takeIn();

// The address of the page holds how its tables are sorted and filtered, as it does without script.
const TABLES = { leaderboard: ["sort", "cursor"], trials: ["state", "point", "where", "columns", "pinned", "trial_sort", "trial_cursor"] };

document.addEventListener("htmx:after:swap", (event) => {
  const answered = event.detail.ctx?.response?.raw?.url;
  const [, part] = answered?.match(/\/parts\/(\w+)/) || [];
  // A live update asks for what is shown already.
  if (!TABLES[part]) return;
  const asked = new URL(answered).searchParams;
  const url = new URL(location.href);
  for (const key of TABLES[part]) url.searchParams.delete(key);
  for (const key of TABLES[part]) for (const value of asked.getAll(key)) if (value) url.searchParams.append(key, value);
  if (url.href !== location.href) history.replaceState(history.state, "", url);
});

// A table is replaced when it is sorted or paged; the keyboard focus stays on the same control.
let held = null;
document.addEventListener("htmx:before:swap", () => {
  const part = document.activeElement.closest("#leaderboard, #trials");
  held = part && { id: part.id, words: document.activeElement.textContent };
});
document.addEventListener("htmx:after:swap", () => {
  if (held && document.activeElement === document.body) {
    const part = document.getElementById(held.id) || document.body;
    const same = [...part.querySelectorAll("a")].find((link) => link.textContent === held.words);
    (same || part.querySelector(".table"))?.focus({ preventScroll: true });
  }
  held = null;
});
if (!document.querySelector("[data-over]")) follow();
