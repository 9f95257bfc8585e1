// Marks the controls whose reason is shown, for screen readers and for the style sheet; and keeps
// what was typed while the answer to an earlier change was on its way.
"use strict";

const form = () => document.getElementById("spec-form");
const values = () => new Map([...new FormData(form())].filter(([name]) => name !== "key"));

function mark() {
  for (const why of document.querySelectorAll(".why")) {
    const control = document.getElementById(why.dataset.for);
    if (!control) continue;
    if (why.textContent.trim()) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }
}

// What the form held when a change was sent that answers with a new form, by its request: one that
// fails leaves nothing behind for the answer to another.
const asked = new WeakMap();
let later = null; // what was typed since, and where the cursor was

document.addEventListener("htmx:before:request", (event) => {
  if (event.target === form()) return;
  asked.set(event.detail.ctx, { before: values(), isSubmit: event.target.value === "create" });
});

document.addEventListener("htmx:before:swap", (event) => {
  const change = asked.get(event.detail.ctx);
  if (!change) return;
  const { before, isSubmit } = change;
  const typed = [...values()].filter(([name, value]) => before.has(name) && before.get(name) !== value);
  // A form that comes back after submission was refused: go to its problems.
  later = { typed, focus: isSubmit ? "check" : document.activeElement?.id };
});

document.addEventListener("htmx:after:swap", () => {
  if (later) {
    const { typed, focus } = later;
    later = null;
    for (const [name, value] of typed) {
      const control = form().elements.namedItem(name);
      if (!control) continue;
      control.value = value;
      control.dispatchEvent(new Event("input", { bubbles: true }));
    }
    if (focus) document.getElementById(focus)?.focus();
  }
  mark();
});

mark();
