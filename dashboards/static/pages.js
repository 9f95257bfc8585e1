// What a page does beyond htmx: draws its plots in the page's colours, follows the sweep's events,
// and says what became of an action. Plots are fetched when they come near the screen.
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
// Images are for papers and slides: dark ink on white, whatever the page looks like.
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
  // Nothing leaves this service: no button that sends the chart elsewhere.
  showSendToCloud: false,
  // Saving has buttons of its own, above the plot.
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud", "toImage"],
};

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

// A plot draws for a tenth of a second or more, and ten asked for at once would all come last. So
// a few are on their way at a time, and the nearest to what is on the screen goes first.
const LANES = 2;
const waiting = new Map();
let lanes = 0;

// Resolves when the plot shows what the service had when it was asked for.
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
  // Whoever asks for several plots in a row has asked for all of them first.
  await null;
  while (waiting.size) {
    const element = [...waiting.keys()].reduce((best, one) => (distance(one) < distance(best) ? one : best));
    const mine = waiting.get(element);
    waiting.delete(element);
    // One plot that cannot be drawn is no reason to leave the others out.
    await fetchAndDraw(element).catch((error) => console.error(error));
    mine.resolve();
    await new Promise((resume) => setTimeout(resume)); // clicks and scrolling come first
  }
  lanes -= 1;
}

// Pixels between an element and what is on the screen; 0 for what is there.
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
  if (!element.figure) clear(element);
  element.figure = answer;
  await Plotly.react(element, answer.data, inColours(answer.layout), CONFIG);
  element.dataset.drawn = String(request);
  offerImages(element, true);
}

// The buttons that save a plot as an image are there while there is a plot: the keyboard reaches
// them, unlike the ones that plotly draws.
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

function redrawPlots() {
  for (const element of document.querySelectorAll("[data-plot][data-live]")) {
    if (element.isNear) draw(element);
    else element.isStale = true;
  }
}

function choosePlot(select) {
  const element = document.getElementById(select.dataset.plotSelect);
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
    if (element.figure) Plotly.react(element, element.figure.data, inColours(element.figure.layout), CONFIG);
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

// The light stands in a part of the page that comes anew, and is gone while nothing runs.
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
  // The sweep is finished. A stream that is not closed here would be opened again and again.
  events.addEventListener("end", () => {
    events.close();
    refresh();
  });
}
// Once, however often the page begins to follow.
addEventListener("pagehide", () => stream?.close());

// ---- Actions

// What an action's form asks for, as the API reads it; null for a plain button.
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
      // A sweep that was made by the action is where to go on.
      const made = response.status === 201 && response.headers.get("Location");
      if (made) location.assign(made.replace("/api/v1", ""));
      // What was over may go on.
      follow();
    } else {
      const body = await response.json().catch(() => ({}));
      notice(body.detail || `The service answered ${response.status}.`);
    }
    // A refusal is news too: somebody else has changed the sweep meanwhile.
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
  if (event.target.matches("select[data-plot-select]")) choosePlot(event.target);
});

// Plots and the light may come with a part of the page. What is watched already stays so.
function takeIn() {
  for (const element of document.querySelectorAll("[data-plot]")) near.observe(element);
  showLight();
}
document.addEventListener("htmx:after:swap", takeIn);
takeIn();

// A table that was sorted or turned comes anew, and who did it by keyboard goes on from there.
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
