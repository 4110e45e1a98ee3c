const MAX_ROWS = 2000, MAX_LINE = 2000;  // rows that are shown; characters of a line, which take a second or two
const areas = [...byId("inputs").querySelectorAll("textarea")], shown = byId("shown"), body = shown.querySelector("tbody");
let turn = 0, answers = [], at = -1;

/** Yields the typed texts with their outputs. */
function* answerLines(model, lines, search) {
  const found = model.answers(lines.map(({ parts }) => model.numTexts > 1 ? parts : parts[0]), search);
  for (const line of lines) yield { ...found.next().value, ...line };
}

/** Computes the outputs of the typed text and shows the line at the cursor. */
async function read(model, area) {
  const mine = ++turn, start = performance.now(), found = [], lines = linesOf(areas), [beams, nBest] = ["beams", "best"].map(id => byId(id).valueAsNumber);
  checkLengths(lines, MAX_LINE);
  const here = area ? area.value.slice(0, area.selectionStart).split("\n").length - 1 : 0;
  byId("speed").textContent = "…";
  const isWhole = await slowly(answerLines(model, lines, { beams: Math.max(beams, nBest), nBest }), answer => found.push(answer), () => mine === turn);
  if (!isWhole) return;
  byId("wrong").hidden = true;
  answers = found;
  const taken = Math.round(performance.now() - start);
  byId("speed").textContent = `${found.length.toLocaleString("en")} texts in ${taken.toLocaleString("en")} ms`;
  byId("all").hidden = found.length < 2;
  body.replaceChildren(...found.slice(0, MAX_ROWS).map((answer, place) => {
    const row = element("tr", element("td", clipped(answer.parts.join(" | "), 200)));
    row.dataset.place = place;
    row.append(element("td", answer.text));
    for (const cell of row.children) cell.dir = "auto";
    return row;
  }));
  if (found.length > MAX_ROWS) byId("speed").textContent += `; the first ${MAX_ROWS.toLocaleString("en")} are shown`;
  look(Math.max(0, found.findLastIndex(({ line }) => line <= here)));
}

/** Shows the outputs of a text and marks its row. */
function look(place) {
  shown.querySelector(".on")?.classList.remove("on");
  at = place;
  const answer = answers[place];
  byId("answers").hidden = !answer;
  if (!answer) return byId("told").replaceChildren("Type a text.");
  shown.querySelector(`[data-place="${place}"]`)?.classList.add("on");
  byId("told").replaceChildren(answer.parts.join(" | "));
  byId("answers").querySelector("tbody").replaceChildren(...[answer, ...answer.others].map(({ text, probability, isComplete }) => {
    const row = element("tr", element("td", isComplete ? text : `${text} …`)), bar = element("span", "", "share");
    row.firstChild.dir = "auto";
    bar.style.width = `${100 * probability}%`;
    row.append(element("td", round(probability, 4), "number"), element("td", bar));
    return row;
  }));
}

load().then(async model => {
  browse(shown, () => Math.min(answers.length, MAX_ROWS), () => at, look);
  byId("beams").value = Math.max(model.search.beams, byId("best").valueAsNumber);
  if (areas.every(area => !area.value)) for (const area of areas) area.value = area.dataset.example;
  const again = area => read(model, area).catch(complain);
  for (const area of areas) area.addEventListener("input", () => again(area));
  for (const id of ["beams", "best"]) byId(id).addEventListener("change", () => again(areas[0]));
  await read(model);
}).catch(complain);
