
// The page. Long computations are cut into slices, so that the page responds.
const SLICE = 12, MAX_TYPED = 50_000;  // milliseconds per slice; maximum characters of a line
const byId = id => document.getElementById(id);
const pause = () => new Promise(done => setTimeout(done));

/** Calls `each` with the values of an iterator, in slices, until `isWanted` returns false. Returns whether all were read. */
async function slowly(iterator, each, isWanted) {
  for (let end = performance.now() + SLICE; isWanted();) {
    const { value, done } = iterator.next();
    if (done) return true;
    each(value);
    if (performance.now() < end) continue;
    await pause();
    end = performance.now() + SLICE;
  }
  iterator.return();
  return false;
}

const round = (value, digits = 2) => Math.max(0, value).toFixed(digits);

function element(name, content, kind = "") {
  const found = document.createElement(name);
  found.className = kind;
  found.append(content);
  return found;
}

const clipped = (text, most) => text.length > most ? text.slice(0, most) + " …" : text;

/** The nonempty lines, each with the same line of the other fields. */
function linesOf(areas) {
  const columns = areas.map(area => area.value.split("\n")), count = Math.max(...columns.map(lines => lines.length));
  const all = Array.from({ length: count }, (_, line) => ({ line, parts: columns.map(lines => lines[line] ?? "") }));
  return all.filter(({ parts }) => parts.some(part => part.trim()));
}

/** Throws a RangeError for a line that would block the page. */
function checkLengths(lines, most = MAX_TYPED) {
  for (const { line, parts } of lines) {
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    if (size > most) throw new RangeError(`line ${line + 1} has ${size.toLocaleString("en")} characters, and the page reads lines of at most ${most.toLocaleString("en")}; the module reads longer ones`);
  }
}

function complain(error) {
  byId("wrong").hidden = false;
  byId("wrong").textContent = `This did not work: ${error.message}`;
}

/** Marks a part as the selected one. */
function mark(shown, place) {
  shown.querySelector(".on")?.classList.remove("on");
  shown.querySelector(`[data-place="${place}"]`)?.classList.add("on");
}

/** Makes parts selectable by pointer and arrow keys; `look` selects a part by its index, and `at` returns the index. */
function browse(shown, count, at, look) {
  for (const kind of ["mouseover", "click"]) shown.addEventListener(kind, event => {
    const part = event.target.closest("[data-place]");
    if (part) look(Number(part.dataset.place));
  });
  shown.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], last = count() - 1;
    const to = event.key === "Home" ? 0 : event.key === "End" ? last : step ? at() + step : null;
    if (to === null || last < 0) return;
    event.preventDefault();
    look(Math.min(last, Math.max(0, to)));
    shown.querySelector(".on")?.scrollIntoView({ block: "nearest" });
  });
}
