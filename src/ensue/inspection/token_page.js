// A text whose tokens are colored by a number of each: what was expected there, a unit, what a head looks at.
const numbers = JSON.parse(document.getElementById("numbers").textContent);
const bytes = packed => Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
const tokens = [...document.querySelectorAll("#tokens .w")];
const color = document.getElementById("color"), unit = document.getElementById("unit");
const range = document.getElementById("range"), told = document.getElementById("told");
const groups = numbers.groups.map(group => ({ ...group, values: bytes(group.values) }));
const round = (value, digits = 3) => value.toFixed(digits).replace("-", "\u2212");
let shown = [];

function unitValues(group, number) {
  const row = group.units.indexOf(number), size = numbers.tokens, low = group.low[row], high = group.high[row];
  return [...group.values.subarray(row * size, (row + 1) * size)].map(value => low + value / 255 * (high - low));
}

function paint() {
  const group = groups[color.value];
  unit.parentElement.hidden = !group;
  const of = group ? unitValues(group, Number(unit.value)) : numbers[color.value];
  shown = of;
  const known = of.filter(value => value !== null), low = Math.min(...known), high = Math.max(...known);
  const full = group ? Math.max(Math.abs(low), Math.abs(high)) : numbers.full;
  const [from, to] = group && low * high > 0 ? [low, high] : [0, full];  // one sign: from the least to the largest
  for (const [place, token] of tokens.entries()) {
    const value = of[place] ?? 0, above = group && low * high > 0 ? value - from : Math.abs(value);
    const strength = to > from ? 80 * Math.min(1, above / (to - from)) : 0;
    token.classList.toggle("for", value >= 0);
    token.classList.toggle("against", value < 0);
    token.style.setProperty("--s", `${strength.toFixed(0)}%`);
  }
  range.textContent = group ? `${round(low)} to ${round(high)}` : `no color: 0, full color: ${round(full, 2)} nats`;
}

function listUnits() {
  const group = groups[color.value];
  unit.replaceChildren(...(group?.units ?? []).map(number => new Option(number, number)));
}

function choose(name, number) {
  const place = groups.findIndex(group => group.name === name);
  if (place < 0 || !groups[place].units.includes(number)) return;
  color.value = place;
  listUnits();
  unit.value = number;
  paint();
}

function element(tag, kind, text) {
  const made = document.createElement(tag);
  made.className = kind;
  made.textContent = text;
  return made;
}

function tell(place) {
  const options = numbers.options[place];
  if (!options) return;
  const line = element("div", "", ""), nats = numbers.surprisal[place];
  line.append(element("b", "", numbers.symbols[numbers.token[place]] ?? "next"));
  const p = nats === null ? "" : `surprisal ${round(nats)} nats, P ${Math.exp(-nats).toPrecision(3)}, `;
  const rank = nats === null ? "" : `rank ${numbers.rank[place]}, `;
  const value = groups[color.value] && place < shown.length ? `, unit ${round(shown[place])}` : "";
  line.append(` ${p}${rank}entropy ${round(numbers.entropy[place])} nats${value}`);
  const bars = options.map(([symbol, probability]) => {
    const bar = element("div", "option", ""), share = element("span", "share", "");
    share.style.width = `${(100 * probability).toFixed(1)}px`;
    bar.append(element("bdi", "", numbers.symbols[symbol]), element("span", "faint", probability.toFixed(4)), share);
    return bar;
  });
  told.replaceChildren(line, ...bars);
}

color.addEventListener("change", () => { listUnits(); paint(); });
unit.addEventListener("change", paint);
document.getElementById("tokens").addEventListener("mouseover", event => {
  const place = event.target.closest(".w")?.dataset.t;
  if (place !== undefined) tell(Number(place));
});
for (const button of document.querySelectorAll("button[data-group]")) button.addEventListener("click", () => {
  choose(button.dataset.group, Number(button.dataset.unit));
  color.scrollIntoView({ block: "center" });
  location.hash = `${button.dataset.group}.${button.dataset.unit}`;
});
const follow = () => {
  const [, name, number] = decodeURIComponent(location.hash).match(/^#(.*)\.(\d+)$/) ?? [];
  if (name) choose(name, Number(number));
};
addEventListener("hashchange", follow);
listUnits();
paint();
tell(0);
follow();

const attention = numbers.attention, looks = document.querySelectorAll("#looks .w");
if (attention) {
  const weights = bytes(attention.values), size = attention.size, heads = document.getElementById("heads");
  let head = 0;
  const look = row => {
    const of = weights.subarray((head * size + row) * size, (head * size + row + 1) * size), most = Math.max(...of, 1);
    looks.forEach((token, place) => token.style.setProperty("--s", `${(80 * of[place] / most).toFixed(0)}%`));
  };
  attention.names.forEach((name, number) => {
    const picture = document.createElement("canvas"), button = element("button", "head", name);
    picture.width = picture.height = size;
    const context = picture.getContext("2d"), image = context.createImageData(size, size);
    for (let place = 0; place < size * size; place++) {
      const weight = weights[number * size * size + place];
      image.data.set([95, 61, 196, weight && Math.min(255, 40 + 1.5 * weight)], 4 * place);
    }
    context.putImageData(image, 0, 0);
    button.prepend(picture);
    button.addEventListener("click", () => {
      heads.querySelector(".chosen")?.classList.remove("chosen");
      button.classList.add("chosen");
      head = number;
      look(size - 1);
    });
    heads.append(button);
  });
  heads.firstChild.click();
  document.getElementById("looks").addEventListener("mouseover", event => {
    const row = event.target.closest(".w")?.dataset.row;
    if (row !== undefined) look(Number(row));
  });
}
