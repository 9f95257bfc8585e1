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

let asked = null; // what the form held when a change was sent that answers with a new form
let later = null; // what was typed since, and where the cursor was

document.addEventListener("htmx:before:request", (event) => {
  if (event.target !== form()) asked = { before: values(), isSubmit: event.target.value === "create" };
});

document.addEventListener("htmx:before:swap", () => {
  if (!asked) return;
  const { before, isSubmit } = asked;
  const typed = [...values()].filter(([name, value]) => before.has(name) && before.get(name) !== value);
  // What was submitted and comes back was refused: on to what is to be put right.
  later = { typed, focus: isSubmit ? "check" : document.activeElement?.id };
  asked = null;
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
