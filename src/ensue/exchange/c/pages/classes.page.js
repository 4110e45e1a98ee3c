const SHOWN = 2000, LINES = 64, MOST = 2000;  // rows; texts that are classified together; characters of a text that are shown
const EXAMPLES = {
  one: ["The sea was calm, and we sailed at dawn.\nNobody laughed, and half of us had left before the end."],
  pair: ["A man plays the guitar on a stage.\nThe shop is open today.", "Somebody makes music.\nThe shop is closed today."],
};
const areas = [of("text"), of("other")], shown = of("shown"), body = shown.querySelector("tbody");
let turn = 0, answers = [], at = -1;

/** Lines with their answers, some after the others. */
function* classified(model, lines) {
  for (let k = 0; k < lines.length; k += LINES) {
    const some = lines.slice(k, k + LINES), found = model.predict(some.map(({ parts }) => model.isPair ? parts : parts[0]));
    for (const [n, answer] of found.entries()) yield { ...answer, ...some[n] };
  }
}

/** Classifies what is typed, and shows the line where that was. */
async function read(model, area) {
  const mine = ++turn, start = performance.now(), found = [], lines = linesOf(areas.slice(0, model.isPair ? 2 : 1));
  checkLengths(lines);
  const here = area ? area.value.slice(0, area.selectionStart).split("\n").length - 1 : 0;
  const isWhole = await slowly(classified(model, lines), answer => found.push(answer), () => mine === turn);
  if (!isWhole) return;
  of("wrong").hidden = true;
  answers = found;
  const taken = Math.round(performance.now() - start), what = model.isPair ? "pairs" : "texts";
  of("speed").textContent = `${found.length.toLocaleString("en")} ${what} in ${taken.toLocaleString("en")} ms`;
  of("all").hidden = found.length < 2;
  body.replaceChildren(...found.slice(0, SHOWN).map((answer, place) => {
    const row = element("tr", element("td", answer.labels.join(", ") || "none"));
    row.dataset.place = place;
    row.append(element("td", round(answer.probability, 4), "number"), element("td", clipped(answer.parts.join(" | "), 200)));
    row.lastChild.dir = "auto";
    return row;
  }));
  if (found.length > SHOWN) of("speed").textContent += `; the first ${SHOWN.toLocaleString("en")} are shown`;
  look(model, Math.max(0, found.findLastIndex(({ line }) => line <= here)));
}

/** Shows the probabilities of a text, and marks it. */
function look(model, place) {
  shown.querySelector(".on")?.classList.remove("on");
  at = place;
  const answer = answers[place];
  of("bars").hidden = !answer;
  if (!answer) return of("told").replaceChildren(`Type a ${model.isPair ? "pair of texts" : "text"}.`);
  shown.querySelector(`[data-place="${place}"]`)?.classList.add("on");
  of("told").replaceChildren(...answer.parts.map(part => {
    const line = element("span", clipped(part, MOST));
    line.dir = "auto";
    return line;
  }));
  of("note").textContent = answer.words ? "" : "It has no words, so the probabilities mean nothing.";
  const ids = model.labels.map((_, id) => id).sort((one, other) => answer.probabilities[other] - answer.probabilities[one]);
  const given = new Set(answer.labels);
  of("bars").tBodies[0].replaceChildren(...ids.map(id => {
    const share = answer.probabilities[id], bar = element("span", "", "share");
    const row = element("tr", element("th", model.labels[id]), given.has(model.labels[id]) ? "is" : "");
    row.firstChild.scope = "row";
    bar.style.width = `${100 * share}%`;
    row.append(element("td", bar), element("td", round(share, 4), "number"));
    return row;
  }));
}

load().then(async model => {
  browse(shown, () => Math.min(answers.length, SHOWN), () => at, place => look(model, place));
  const examples = EXAMPLES[model.isPair ? "pair" : "one"];
  if (model.isPair) {
    of("inputs").className = "sides";
    of("more").hidden = false;
    of("first").textContent = "First texts";
    of("hint").textContent = "Each line is a text, which is read with the same line on the other side. Type your own.";
    of("heading").textContent = "All pairs";
    of("what").textContent = "texts";
  }
  if (areas.every(area => !area.value)) examples.forEach((example, k) => { areas[k].value = example; });
  for (const area of areas) area.addEventListener("input", () => read(model, area).catch(complain));
  await read(model);
}).catch(complain);
