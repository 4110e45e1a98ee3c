
// The page. Long work is cut into slices, so that it stays awake.
const SLICE = 12;  // milliseconds
const of = id => document.getElementById(id);
const pause = () => new Promise(done => setTimeout(done));

/** Calls `each` with all that an iterator gives, in slices, as long as `isWanted`. */
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

function complain(error) {
  of("wrong").hidden = false;
  of("wrong").textContent = `This did not work: ${error.message}`;
}

/** Looks at parts with a place under the pointer, and by the arrow keys. */
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
