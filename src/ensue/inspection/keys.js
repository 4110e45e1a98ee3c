// The arrow keys move from item to item in a text, a drawing or a table. The title of the item is shown at the bottom.
const PANES = ".text, .scroll, .table", ITEMS = ".w, [title], g:not(:has(g)) > :has(> title)";
const titleLine = document.querySelector(".title");
let items = { pane: null, all: [] };  // the items of the pane that was used last
let current = null;

function itemsOf(pane) {
  if (items.pane !== pane) items = { pane, all: [...pane.querySelectorAll(ITEMS)] };
  return items.all;
}

function showTitle(item) {
  const title = item.getAttribute("title") ?? item.querySelector(":scope > title")?.textContent ?? "";
  titleLine.textContent = title.replaceAll("\n", " · ");
}

function moveTo(pane, item) {
  current?.classList.remove("at");
  current?.setAttribute("aria-selected", "false");
  current = item;
  item.classList.add("at");
  item.id ||= `item${Math.random().toString(36).slice(2)}`;
  if (pane.getAttribute("role") === "listbox") item.setAttribute("aria-selected", "true");
  pane.setAttribute("aria-activedescendant", item.id);
  item.scrollIntoView({ block: "nearest", inline: "nearest" });
  showTitle(item);
  look(item.closest("[data-t], [data-row]") ?? item);
}

// The nearest item in a direction; distances at right angles to the direction count three times.
function nearest(all, from, dx, dy) {
  const middle = item => {
    const box = item.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const [x, y] = middle(from);
  let best = from, minDistance = Infinity;
  for (const item of all) {
    const [u, v] = middle(item);
    const along = (u - x) * dx + (v - y) * dy, aside = Math.abs((u - x) * dy) + Math.abs((v - y) * dx);
    if (along > 3 && along + 3 * aside < minDistance) [best, minDistance] = [item, along + 3 * aside];
  }
  return best;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
document.addEventListener("keydown", event => {
  const pane = event.target;
  if (!pane.matches?.(PANES) || event.ctrlKey || event.altKey || event.metaKey) return;
  const all = itemsOf(pane), place = all.indexOf(current), arrow = ARROWS[event.key];
  let next;
  if (event.key === "Home") next = all[0];
  else if (event.key === "End") next = all.at(-1);
  else if (event.key === "Enter" && place >= 0) return current.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  else if (!arrow) return;
  else if (place < 0) next = all[0];
  else if (arrow[0] && pane.matches(".text")) next = all[place + arrow[0]];
  else next = nearest(all, current, ...arrow);
  event.preventDefault();
  if (next) moveTo(pane, next);
});
document.addEventListener("focusout", () => { titleLine.textContent = ""; });
