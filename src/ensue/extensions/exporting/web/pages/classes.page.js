const BATCH_LINES = 64, MAX_SHOWN = 2000;  // lines per batch; characters of a text that are shown
const EXAMPLES = {
  one: ["The sea was calm, and we sailed at dawn.\nNobody laughed, and half of us had left before the end."],
  pair: ["A man plays the guitar on a stage.\nThe shop is open today.", "Somebody makes music.\nThe shop is closed today."],
};
const areas = [byId("text"), byId("other")], shown = byId("shown");
let latest = 0, answers = [], at = -1;

/** Yields lines with their outputs, in batches. */
function* classify(model, lines) {
  for (let k = 0; k < lines.length; k += BATCH_LINES) {
    const batch = lines.slice(k, k + BATCH_LINES), found = model.predict(batch.map(({ parts }) => model.isPair ? parts : parts[0]));
    for (const [n, answer] of found.entries()) yield { ...answer, ...batch[n] };
  }
}

/** Classifies the typed text and shows the line at the cursor. */
async function read(model, area) {
  const call = ++latest, start = performance.now(), found = [], lines = linesOf(areas.slice(0, model.isPair ? 2 : 1));
  checkLengths(lines);
  const here = area ? area.value.slice(0, area.selectionStart).split("\n").length - 1 : 0;
  const isComplete = await slowly(classify(model, lines), answer => found.push(answer), () => call === latest);
  if (!isComplete) return;
  byId("wrong").hidden = true;
  answers = found;
  byId("speed").textContent = speedOf(found, model.isPair ? "pairs" : "texts", start);
  showRows(found, ({ labels, probability, parts }) => [labels.join(", ") || "none", { number: round(probability, 4) }, clipped(parts.join(" | "), 200)]);
  look(model, Math.max(0, found.findLastIndex(({ line }) => line <= here)));
}

/** Shows the probabilities of a text and marks its row. */
function look(model, place) {
  mark(shown, at = place);
  const answer = answers[place];
  showBars(model, answer);
  if (!answer) return byId("told").replaceChildren(`Type a ${model.isPair ? "pair of texts" : "text"}.`);
  byId("told").replaceChildren(...answer.parts.map(part => {
    const line = element("span", clipped(part, MAX_SHOWN));
    line.dir = "auto";
    return line;
  }));
  byId("note").textContent = answer.words ? "" : "The text has no words, so its probabilities are meaningless.";
}

load().then(async model => {
  browse(shown, () => Math.min(answers.length, MAX_ROWS), () => at, place => look(model, place));
  const examples = EXAMPLES[model.isPair ? "pair" : "one"];
  if (model.isPair) {
    byId("inputs").className = "sides";
    byId("more").hidden = false;
    byId("first").textContent = "First texts";
    byId("hint").textContent = "Each line forms a pair with the same line on the other side. Type your own.";
    byId("heading").textContent = "All pairs";
    shown.querySelector("th:last-child").textContent = "texts";
  }
  if (areas.every(area => !area.value)) examples.forEach((example, k) => { areas[k].value = example; });
  for (const area of areas) area.addEventListener("input", () => read(model, area).catch(complain));
  await read(model);
}).catch(complain);
