
const { token: unitName, length } = byId("written").dataset;
const MAX_PARTS = 20000, EXAMPLE = 160;  // colored parts; characters of an example
const text = byId("text"), unit = byId("unit"), shown = byId("shown"), told = byId("told");

/** Splits a text into tokens or words. A part has the sum of the surprisals of the tokens that begin in it. */
function partsOf(tokens, string, by) {
  const ends = by === "word" ? [...string.matchAll(/\s*\S+|\s+$/gu)].map(found => found.index + found[0].length) : null;
  const parts = [];
  let k = 0;
  for (const token of tokens) {
    while (ends && ends[k] <= token.begin) k++;
    const last = parts.at(-1), end = ends ? ends[k] : token.end;
    if (last && (ends ? last.end === end : last.begin === token.begin)) {
      last.nats += token.nats;
      last.count++;
      last.isUnknown ||= token.isUnknown;
    } else {
      parts.push({ begin: token.begin, end, nats: token.nats, count: 1, isUnknown: token.isUnknown });
    }
  }
  for (const part of parts) part.text = string.slice(part.begin, part.end);
  return parts;
}

let latestReading = 0, tokens = [], read = "", parts = [];

async function surprise(model) {
  const call = ++latestReading, found = [], typed = text.value;
  const isComplete = await slowly(model.read(typed), token => found.push(token), () => call === latestReading);
  if (!isComplete) return;
  [tokens, read] = [found, typed];
  paint(model);
}

function paint(model) {
  parts = partsOf(tokens, read, unit.value);
  const words = partsOf(tokens, read, "word").filter(part => part.text.trim());
  const full = Math.log(model.vocabularySize) * (unit.value === "word" && unit.options.length > 1 ? 4 : 1);
  byId("full").textContent = `${round(full, 1)} nats or more`;
  shown.replaceChildren(...parts.slice(0, MAX_PARTS).map((part, place) => {
    const found = element("span", part.text, `w for${part.isUnknown ? " unknown" : ""}`);
    if (part.text.includes("\n")) {
      found.replaceChildren(...part.text.split("\n").flatMap((line, k) => k ? [element("i", "↵"), "\n", line] : [line]));
    }
    found.style.setProperty("--s", `${(80 * Math.min(1, Math.max(0, part.nats) / full)).toFixed(0)}%`);
    found.dataset.place = place;
    return found;
  }));
  const sum = tokens.reduce((total, token) => total + token.nats, 0), each = sum / tokens.length;
  const unknown = tokens.filter(token => token.isUnknown).length;
  const facts = !tokens.length ? [] : [
    [round(sum, 1), "nats in total"], [round(each, 3), `nats per ${unitName}`],
    ...(unit.options.length > 1 && words.length ? [[round(sum / words.length, 2), "nats per word"]] : []),
    [round(Math.exp(each)), "perplexity"],
    ...(unknown ? [[unknown.toLocaleString("en"), "not in the vocabulary"]] : []),
    ...(parts.length > MAX_PARTS ? [[MAX_PARTS.toLocaleString("en"), "parts are in colors"]] : []),
  ];
  byId("facts").replaceChildren(...facts.map(([value, what]) => {
    const item = element("li", element("b", value));
    item.append(` ${what}`);
    return item;
  }));
  const most = words.sort((one, other) => other.nats - one.nats).slice(0, 10);
  byId("most").hidden = !most.length;
  byId("most").querySelector("tbody").replaceChildren(...most.map(part => {
    const row = element("tr", element("td", part.text.trim()));
    row.append(element("td", round(part.nats), "number"));
    return row;
  }));
  look(-1);
}

let at = -1;

/** Describes and marks a part. */
function look(place) {
  mark(shown, at = place);
  const part = parts[place];
  if (!part) return told.replaceChildren("Point at a part of the text, or go there with the arrow keys.");
  told.replaceChildren(element("b", part.text.replaceAll("\n", "↵").replace(/^ +| +$/g, blanks => "␣".repeat(blanks.length))));
  const unknown = part.isUnknown ? ", not in the vocabulary" : "";
  told.append(`: surprisal ${round(part.nats, 3)} nats (${round(part.nats / Math.LN2, 2)} bits), P ${Math.exp(-part.nats).toPrecision(3)}${unknown}`);
}

browse(shown, () => Math.min(parts.length, MAX_PARTS), () => at, look);

let latestWriting = 0;

async function write(model) {
  const call = ++latestWriting, prompt = text.value, start = performance.now(), written = byId("written");
  let count = 0, waiting = "";
  const [seed, temperature, maxTokens] = ["seed", "temperature", "length"].map(id => byId(id).valueAsNumber);
  const place = document.createTextNode("");
  written.replaceChildren(element("span", prompt, "faint"), place);
  [byId("write").disabled, byId("stop").disabled] = [true, false];
  byId("speed").textContent = "writing …";
  const found = model.context ? model.score(prompt) : [], cut = found.length > model.context ? found.at(-model.context).begin : 0;
  const pieces = model.generate(prompt.slice(cut), { seed, temperature, maxTokens });
  const timer = setInterval(flush, 50);
  function flush() {
    place.appendData(waiting);
    waiting = "";
  }
  try {
    await slowly(pieces, piece => { waiting += piece; count++; }, () => call === latestWriting);
    const taken = Math.round(performance.now() - start);
    const from = cut ? `, continued from the last ${model.context} ${unitName}s` : "";
    byId("speed").textContent = `${count.toLocaleString("en")} ${unitName}s in ${taken.toLocaleString("en")} ms${from}`;
  } catch (error) {
    complain(error);
  } finally {
    clearInterval(timer);
    flush();
    [byId("write").disabled, byId("stop").disabled] = [false, true];
  }
}

load().then(async model => {
  text.addEventListener("input", () => {
    byId("hint").hidden = true;
    surprise(model).catch(complain);
  });
  unit.addEventListener("change", () => paint(model));
  byId("form").addEventListener("submit", event => {
    event.preventDefault();
    write(model);
  });
  byId("stop").addEventListener("click", () => latestWriting++);
  byId("write").disabled = false;
  if (text.value) byId("hint").hidden = true;
  text.value ||= [...model.generate("", { maxTokens: length, seed: 1, temperature: 0.7 })].join("").trimStart().slice(0, EXAMPLE);
  await surprise(model);
}).catch(complain);
