// The log of a running trial: adds what it writes, in bounded memory. Texts are never read as HTML.
"use strict";

const MOST_CHARACTERS = 400_000;
// As ``is_attempt_start`` of the page.
const ATTEMPT_START = /^[-\d]+ [:,\d]+ INFO attempt (\d+ )?starts in process \d+/;

function followLog(element) {
  let size = element.textContent.length;
  let line = ""; // the last one, which may go on
  const source = new EventSource(element.dataset.log);
  source.addEventListener("log", (event) => {
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    const lines = (line + JSON.parse(event.data).text).split("\n");
    line = lines.pop();
    for (const text of lines) {
      size += text.length + 1;
      if (ATTEMPT_START.test(text)) {
        const start = document.createElement("b");
        start.textContent = text;
        element.append(start);
      } else element.append(`${text}\n`);
    }
    while (size > MOST_CHARACTERS && element.firstChild !== element.lastChild) {
      size -= element.firstChild.textContent.length;
      element.firstChild.remove();
    }
    if (element.firstChild) document.querySelector(".log-empty")?.remove();
    if (atEnd) element.scrollTop = element.scrollHeight;
  });
  source.addEventListener("end", () => {
    if (line) element.append(line);
    source.close();
  });
  addEventListener("pagehide", () => source.close());
}

for (const element of document.querySelectorAll("pre.log")) {
  element.scrollTop = element.scrollHeight;
  if (element.dataset.log) followLog(element);
}
