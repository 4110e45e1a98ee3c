const MAX_SEGMENTS = 2000;  // segments that are shown
let segments = [], part = -1;

/** Shows the segments of a series on a line and in a table, with the probabilities of the labels. */
function paint(model, tones, answer) {
  byId("one").hidden = !answer;
  segments = answer ? answer.segments.slice(0, MAX_SEGMENTS) : [];
  if (answer) {
    const { labels, probabilities } = answer, duration = labels.length * (model.secondsPerFrame ?? 1), percent = time => `${100 * time / duration}%`;
    const unit = model.rate ? time => time.toFixed(2) : time => time.toLocaleString("en");
    byId("line").replaceChildren(...segments.map(({ label, begin, end }, place) => {
      const chip = element("span", nameOf(label), "chip");
      chip.dataset.place = place;
      Object.assign(chip.style, { left: percent(begin), width: percent(end - begin) });
      chip.style.setProperty("--tone", tones.get(label));
      return chip;
    }));
    byId("curve").setAttribute("viewBox", `0 -0.04 ${labels.length} 1.08`);
    byId("curve").firstElementChild.setAttribute("d", `M${probabilities.map((p, t) => `${t} ${1 - p}H${t + 1}`).join("L")}`);
    byId("end").textContent = model.rate ? `${unit(duration)} s` : `${unit(duration)} frames`;
    const times = new Map();
    for (const { label, begin, end } of answer.segments) times.set(label, (times.get(label) ?? 0) + end - begin);
    showCounts(tones, times, time => model.rate ? `${unit(time)} s` : `${unit(time)} frame${time === 1 ? "" : "s"}`);
    byId("parts").querySelector("tbody").replaceChildren(...segments.map(({ label, begin, end, probability }, place) => {
      const row = element("tr", element("td", nameOf(label)));
      row.dataset.place = place;
      for (const number of [unit(begin), model.rate ? unit(end) : unit(end - 1), round(probability, 4)]) row.append(element("td", number, "number"));
      return row;
    }));
  }
  describe(model, answer, -1);
}

/** Describes and marks a segment. */
function describe(model, answer, place) {
  part = place;
  for (const id of ["line", "parts"]) mark(byId(id), place);
  if (!answer) return byId("told").replaceChildren(instructions(model));
  if (place < 0) return byId("told").replaceChildren(`${answer.name} (${answer.size}). Point at a segment, or go there with the arrow keys.`);
  const { label, begin, end, probability } = segments[place];
  const range = model.rate ? `${begin.toFixed(2)} to ${end.toFixed(2)} s` : `frames ${begin} to ${end - 1}`;
  byId("told").replaceChildren(`${answer.name}, ${range}: `, element("b", nameOf(label)), `, mean P ${round(probability, 4)}`);
}

load().then(model => {
  const tones = tonesOf(model);
  for (const id of ["line", "parts"]) browse(byId(id), () => segments.length, () => part, place => describe(model, answers[at], place));
  const namesIn = answer => clipped(answer.segments.slice(0, 200).map(({ label }) => nameOf(label)).join(" "), 200) || "none";
  listen(model, answer => [namesIn(answer), answer.name], answer => paint(model, tones, answer));
}).catch(complain);
