// Images of notes: one that is chosen or pasted is sent, and its Markdown stands where the cursor is.
"use strict";

async function addImage(file) {
  const form = document.querySelector("form[data-images]");
  const notes = document.getElementById("edit-notes");
  const status = form.querySelector("[role=status]");
  status.textContent = "Sending…";
  try {
    const response = await fetch(form.dataset.images, { method: "POST", body: file, headers: { "Content-Type": file.type } });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.detail || `the service answered ${response.status}`);
    const text = answer.markdown.replace("image", (file.name || "image").replace(/[^\w .-]/g, "").slice(0, 80) || "image");
    const needsLine = notes.selectionStart > 0 && notes.value[notes.selectionStart - 1] !== "\n";
    notes.setRangeText(`${needsLine ? "\n" : ""}${text}\n`, notes.selectionStart, notes.selectionEnd, "end");
    status.textContent = "The image is in the notes above; save them to keep it.";
    form.reset();
  } catch (error) {
    status.textContent = `Not added: ${error.message}`;
  }
}

// The parts of a page are replaced while it is live, so the page listens, not the form.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-images]")) return;
  event.preventDefault();
  addImage(event.target.elements.image.files[0]);
});
document.addEventListener("paste", (event) => {
  if (event.target.id !== "edit-notes") return;
  const image = [...event.clipboardData.files].find((file) => file.type.startsWith("image/"));
  if (!image) return;
  event.preventDefault();
  addImage(image);
});
