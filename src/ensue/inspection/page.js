// Functions of all sections of a page: the data of a section's drawer, and the highlighting of a word in all drawings.
"use strict";
const drawers = {};  // functions by the name in `data-draw`; arguments: the section, its data and its article

const bytes = packed => Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
const round = (value, digits = 3) => value.toFixed(digits).replace("-", "\u2212");

function element(tag, kind, text) {
  const created = document.createElement(tag);
  created.className = kind;
  created.textContent = text;
  return created;
}

function numbersOf(part) {
  const numbers = part.querySelector(':scope > script[type="application/json"]');
  return numbers && JSON.parse(numbers.textContent);
}

function open(content) {
  forgetCurves();
  for (const article of content.querySelectorAll("article")) {
    for (const part of article.querySelectorAll("[data-draw]")) {
      drawers[part.dataset.draw](part, numbersOf(part), article);
    }
  }
  compare(content);
  const panes = [...content.querySelectorAll(".aligned")];
  for (const pane of panes) pane.addEventListener("scroll", () => {
    for (const other of panes) if (other !== pane) other.scrollLeft = pane.scrollLeft;
  }, { passive: true });
}

// Highlights an item that the pointer, the keys or a curve selects, and sends the event "look" to its drawer.
const marked = document.getElementsByClassName("on");
let last = null;
function look(item) {
  if (item === last) return;
  last = item;
  item?.dispatchEvent(new CustomEvent("look", { bubbles: true }));
  const place = item?.closest("[data-t]")?.dataset.t;
  for (const element of [...marked]) element.classList.remove("on");
  if (place === undefined) return;
  for (const element of document.querySelectorAll(`[data-t="${place}"]`)) element.classList.add("on");
}
document.addEventListener("mouseover", event => look(event.target.closest("[data-t], [data-row]")));

drawers.attended = part => {  // an output, and its attention to the source
  const source = part.querySelectorAll(".attended .w");
  part.addEventListener("look", event => {
    const strengths = event.target.closest("[data-look]")?.dataset.look.split(" ") ?? [];
    for (const [place, strength] of strengths.entries()) source[place]?.style.setProperty("--s", `${strength}%`);
  });
};
