// The live page: it requests the sections of a page from the server for a typed text.
const form = document.querySelector("form"), main = document.querySelector("main");
const state = form.querySelector(".state"), inputs = form.querySelector(".inputs");
const WAIT = 150;  // milliseconds without a change before a request
let options = {};  // options of a request, set by a section of the page
let models = [], request = new AbortController(), typing = 0;

function showState(text, isWrong = false) {
  state.textContent = text;
  state.classList.toggle("wrong", isWrong);
}

async function ask(path, body, signal) {
  const headers = form.key.value ? { Authorization: `Bearer ${form.key.value}` } : {};
  const answer = await fetch(path, body ? { method: "POST", body: JSON.stringify(body), headers, signal } : { headers });
  const value = await answer.json();
  if (answer.ok) return value;
  throw Object.assign(new Error(value.error.message), { status: answer.status });
}

async function begin() {
  try {
    models = (await ask("/v1/models")).data.filter(model => model.routes.includes("/v1/inspect"));
  } catch (error) {
    form.key.parentElement.hidden &&= error.status !== 401;
    const keyProblem = form.key.value ? "The server has another key." : "The server needs a key.";
    if (error.status === 401) return showState(keyProblem, true);
    showState(error.message, true);
    return setTimeout(begin, 1000);  // the server may still be loading
  }
  if (!models.length) return showState("No model of this server can be inspected.", true);
  const chosen = form.model.value;
  form.model.replaceChildren(...models.map(model => new Option(model.id, model.id)));
  if (models.some(model => model.id === chosen)) form.model.value = chosen;
  choose();
}

function names({ num_texts: count, num_scored: scored, reads_frames: readsFrames }) {
  if (readsFrames) return ["frames: a line of numbers for each"];
  const texts = Array.from({ length: count }, (_, place) => count > 1 ? `text ${place + 1}` : "text");
  if (scored === count) return texts;
  return [...texts.map(name => name.replace("text", "source")), "target (the model’s own if empty)"];
}

// The frames in a typed text: a line for each, with blanks, commas or semicolons between its numbers.
function framesOf(text) {
  return text.trim().split("\n").map(line => line.trim().split(/[\s,;]+/).map(Number));
}

function choose() {
  options = {};
  const model = models.find(({ id }) => id === form.model.value);
  const others = models.filter(other => other !== model && other.task === model.task);
  const comparedId = form.beside.value, typed = [...inputs.querySelectorAll("textarea")].map(area => area.value);
  form.beside.replaceChildren(new Option("nothing", ""), ...others.map(other => new Option(other.id, other.id)));
  if (others.some(other => other.id === comparedId)) form.beside.value = comparedId;
  form.beside.disabled = !others.length;
  form.beside.title = others.length ? "" : `No other model of this server does ${model.task}.`;
  inputs.replaceChildren(...names(model).map((name, place) => {
    const label = element("label", "", name), area = document.createElement("textarea");
    area.rows = 3;
    area.spellcheck = false;
    area.value = typed[place] ?? "";
    label.append(area);
    return label;
  }));
  show();
}

async function show() {
  request.abort();
  request = new AbortController();
  const { signal } = request, model = models.find(({ id }) => id === form.model.value);
  const texts = [...inputs.querySelectorAll("textarea")].map(area => area.value);
  if (texts.length > model.num_texts && !texts.at(-1)) texts.pop();
  if (texts.some(text => !text)) return showState("Type, and see.");
  const input = model.reads_frames ? framesOf(texts[0]) : texts;
  if (model.reads_frames && !input.flat().every(Number.isFinite)) {
    return showState("A line has a value that is not a number.", true);
  }
  const start = performance.now();
  showState("…");
  try {
    const ids = [form.model.value, form.beside.value].filter(Boolean);
    const body = { inputs: [input], parts: ["content"], ...options };
    const answers = await Promise.all(ids.map(id => ask("/v1/inspect", { model: id, ...body }, signal)));
    replace(answers.map(({ outputs: [{ content }] }) => new DOMParser().parseFromString(content, "text/html")));
    showState(`${(performance.now() - start).toFixed(0)} ms`);
  } catch (error) {
    if (error.name !== "AbortError") showState(error.message, true);
  }
}

// Replaces the shown pages. Selections and scroll positions stay.
function replace(pages) {
  const selected = [...main.querySelectorAll("select")].map(select => select.value);
  const scrolled = [...main.querySelectorAll(".close")].map(pane => pane.scrollTop);
  const [parts, ...others] = pages.map(page => page.querySelector(".parts"));
  for (const other of others) parts.append(...other.children);
  parts.className = `parts n${pages.length}`;
  const headings = [...new Set([...parts.querySelectorAll("h2")].map(heading => heading.textContent))];
  for (const section of parts.querySelectorAll("section")) {
    section.style.gridRow = 2 + headings.indexOf(section.querySelector("h2").textContent);
  }
  main.style.minHeight = `${main.offsetHeight}px`;  // so the page does not scroll
  main.replaceChildren(parts);
  open(main);
  for (const [place, select] of main.querySelectorAll("select").entries()) {
    if (selected[place] === undefined || select.value === selected[place]) continue;
    if (![...select.options].some(option => option.value === selected[place])) continue;
    select.value = selected[place];
    select.dispatchEvent(new Event("change"));
  }
  for (const [place, pane] of main.querySelectorAll(".close").entries()) pane.scrollTop = scrolled[place] ?? 0;
  main.style.minHeight = "";
}

form.addEventListener("submit", event => event.preventDefault());
form.key.addEventListener("change", begin);
form.model.addEventListener("change", choose);
form.beside.addEventListener("change", show);
document.addEventListener("ask", ({ detail }) => {
  options = detail;
  show();
});
inputs.addEventListener("input", () => {
  options = { off: options.off };  // the tokens have new numbers
  clearTimeout(typing);
  typing = setTimeout(show, WAIT);
});
begin();
