const MAX_WORDS = 20000, LINES = 64, EXAMPLE = "Anna Novak moved from Lima to Vienna in 1999.\nShe still writes for The Daily Post.";
const text = byId("text"), shown = byId("shown"), told = byId("told");
let latest = 0, words = [], whole = "", at = -1;

/** Yields the words and spans of texts, in batches of lines. */
function* labelLines(model, lines) {
  for (let k = 0, offset = 0; k < lines.length; k += LINES) {
    const batch = lines.slice(k, k + LINES), found = model.predict(batch);
    for (const [n, sentence] of found.entries()) {
      const spans = model.spans(sentence);
      for (const word of sentence) Object.assign(word, { begin: word.begin + offset, end: word.end + offset });
      for (const span of spans) {
        for (let place = span.first; place <= span.last; place++) Object.assign(sentence[place], { span, inner: place - span.first });
      }
      offset += batch[n].length + 1;
      yield sentence;
    }
  }
}

async function read(model) {
  const call = ++latest, start = performance.now(), typed = text.value, found = [];
  checkLengths(linesOf([text]));
  const isComplete = await slowly(labelLines(model, typed.split("\n")), sentence => found.push(...sentence), () => call === latest);
  if (!isComplete) return;
  byId("wrong").hidden = true;
  [words, whole] = [found, typed];
  const taken = Math.round(performance.now() - start);
  byId("speed").textContent = words.length ? `${words.length.toLocaleString("en")} words in ${taken.toLocaleString("en")} ms` : "";
  paint(model);
}

function paint(model) {
  const tones = tonesOf(model), content = [];
  let end = 0, open = null;
  words.slice(0, MAX_WORDS).forEach((word, place) => {
    const isNext = word.span && word.inner;
    (isNext ? open : content).push(whole.slice(end, word.begin));
    const part = element("span", word.text);
    part.dataset.place = place;
    const parts = isNext ? open : [];
    parts.push(part);
    if (byId("numbers").checked) parts.push(element("small", round(word.probability)));
    if (!word.span) content.push(...parts);
    else if (!isNext) {
      open = parts;
      content.push({ span: word.span, parts });
    }
    end = word.end;
  });
  shown.replaceChildren(...content.map(item => {
    if (!item.span) return item;
    const chip = element("span", "", "chip");
    chip.replaceChildren(...item.parts, element("sub", nameOf(item.span.label)));
    chip.style.setProperty("--tone", tones.get(item.span.label));
    return chip;
  }), words.length > MAX_WORDS ? " …" : "");
  const counts = new Map();
  for (const word of words) if (word.span && !word.inner) counts.set(word.span.label, (counts.get(word.span.label) ?? 0) + 1);
  showCounts(tones, counts, count => count.toLocaleString("en"));
  const least = [...words].sort((one, other) => one.probability - other.probability).slice(0, 10);
  byId("least").hidden = !least.length;
  byId("least").querySelector("tbody").replaceChildren(...least.map(word => {
    const row = element("tr", element("td", word.text));
    row.append(element("td", word.label), element("td", round(word.probability, 4), "number"));
    return row;
  }));
  look(-1);
}

/** Describes and marks a word. */
function look(place) {
  mark(shown, at = place);
  const word = words[place];
  if (!word) return told.replaceChildren("Point at a word, or go there with the arrow keys.");
  told.replaceChildren(element("b", word.text), `: ${word.label}, P ${round(word.probability, 4)}`);
}

browse(shown, () => Math.min(words.length, MAX_WORDS), () => at, look);
load().then(async model => {
  text.addEventListener("input", () => read(model).catch(complain));
  byId("numbers").addEventListener("change", () => paint(model));
  text.value ||= EXAMPLE;
  await read(model);
}).catch(complain);
