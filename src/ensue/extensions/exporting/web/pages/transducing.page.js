const MAX_LINE = 2000;  // characters of a line, which take a second or two
const areas = [...byId("inputs").querySelectorAll("textarea")], shown = byId("shown");
let latest = 0, answers = [], at = -1;

/** Yields the typed texts with their outputs. */
function* answerLines(model, lines, search) {
  const found = model.answers(lines.map(({ parts }) => model.numTexts > 1 ? parts : parts[0]), search);
  for (const line of lines) yield { ...found.next().value, ...line };
}

/** Computes the outputs of the typed text and shows the line at the cursor. */
async function read(model, area) {
  const call = ++latest, start = performance.now(), found = [], lines = linesOf(areas), [beams, nBest] = ["beams", "best"].map(id => byId(id).valueAsNumber);
  checkLengths(lines, MAX_LINE);
  const here = area ? area.value.slice(0, area.selectionStart).split("\n").length - 1 : 0;
  byId("speed").textContent = "…";
  const isComplete = await slowly(answerLines(model, lines, { beams: Math.max(beams, nBest), nBest }), answer => found.push(answer), () => call === latest);
  if (!isComplete) return;
  byId("wrong").hidden = true;
  answers = found;
  byId("speed").textContent = speedOf(found, "texts", start);
  showRows(found, ({ parts, text }) => [clipped(parts.join(" | "), 200), text]);
  look(Math.max(0, found.findLastIndex(({ line }) => line <= here)));
}

/** Shows the outputs of a text and marks its row. */
function look(place) {
  mark(shown, at = place);
  const answer = answers[place];
  byId("answers").hidden = !answer;
  if (!answer) return byId("told").replaceChildren("Type a text.");
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
