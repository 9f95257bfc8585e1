// What every page does: says what went wrong with a request, and lets go of an open menu.
"use strict";

// Says something in the corner for a while, in words that a screen reader speaks too.
function notice(text) {
  const box = document.getElementById("notice");
  // The same words again are not news: a list asks every few seconds.
  if (box.hidden || box.textContent !== text) box.textContent = text;
  box.hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => (box.hidden = true), 8000);
}

const SILENT = "The service does not answer. Is it still running? This page may be out of date.";

// A part of the page, or a form, that was asked for and did not come: what is there stays.
document.addEventListener("htmx:error", (event) => {
  if (event.detail.ctx) notice(SILENT);
});
document.addEventListener("htmx:response:error", (event) => {
  const { status } = event.detail.ctx.response;
  if (status === 404) notice("This was deleted. The page shows its last state.");
  else if (status !== 422) notice(`The service answered ${status}. This page may be out of date.`);
});

// What makes or deletes something is sent once, however often its button is pressed meanwhile. Other
// forms ask a script first, which sees to that itself.
document.addEventListener("submit", (event) => {
  const { target: form } = event;
  if (form.method !== "post" || form.matches("[data-action], [data-view], [hx-post]")) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

// ---- Menus: one is open at a time, as their common name says. Escape and clicks elsewhere close it.

const openMenu = () => document.querySelector(".menu[open]");

document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && openMenu();
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
document.addEventListener("click", (event) => {
  const menu = openMenu();
  if (menu && (!menu.contains(event.target) || event.target.closest(".panel a"))) menu.open = false;
});
// A panel hangs from the left edge of its button, or from the right one where it would be cut off.
document.addEventListener(
  "toggle",
  ({ target }) => {
    if (!target.matches(".menu[open]")) return;
    const panel = target.querySelector(".panel");
    target.classList.remove("from-right");
    const cut = panel.getBoundingClientRect().right > document.documentElement.clientWidth;
    target.classList.toggle("from-right", cut);
  },
  true,
);
