// A text whose tokens are colored by a number of each: what was expected there, a unit, or what another part gives.
drawers.tokens = (part, numbers, article) => {
  const find = kind => part.querySelector(`.${kind}`);
  const color = find("color"), unit = find("unit"), range = find("range"), told = find("told");
  const tokens = [...part.querySelectorAll(".tokens .w")];
  const groups = numbers.groups;
  const given = new Map();  // by name the values that other parts gave
  const draw = curve(find("curve"), tokens);
  let shown = [];

  function unitValues(group, number) {
    const row = group.units.indexOf(number), size = numbers.tokens, low = group.low[row], high = group.high[row];
    group.bytes ??= bytes(group.values);  // with the first of its units
    return [...group.bytes.subarray(row * size, (row + 1) * size)].map(value => low + value / 255 * (high - low));
  }

  function paint() {
    const group = groups[color.value], other = given.get(color.value), signed = group || other;
    unit.parentElement.hidden = !group;
    const of = group ? unitValues(group, Number(unit.value)) : other ?? numbers[color.value];
    shown = of;
    let low = Infinity, high = -Infinity;
    for (const value of of) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
    const full = signed ? Math.max(Math.abs(low), Math.abs(high)) : numbers.full;
    const [from, to] = group && low * high > 0 ? [low, high] : [0, full];  // one sign: from the least to the largest
    for (const [place, token] of tokens.entries()) {
      const value = of[place] ?? 0, above = group && low * high > 0 ? value - from : Math.abs(value);
      const strength = to > from ? 80 * Math.min(1, above / (to - from)) : 0;
      token.classList.toggle("for", value >= 0);
      token.classList.toggle("against", value < 0);
      token.style.setProperty("--s", `${strength.toFixed(0)}%`);
    }
    range.textContent = signed ? `${round(low)} to ${round(high)}` : `no color: 0, full color: ${round(full, 2)} nats`;
    draw(color.selectedOptions[0].textContent + (group ? ` ${unit.value}` : ""), of);
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

  function tell(place) {
    const options = numbers.options[place];
    if (!options) return;
    const line = element("div", "", ""), nats = numbers.surprisal[place];
    line.append(element("b", "", numbers.symbols[numbers.token[place]] ?? "next"));
    const p = nats === null ? "" : `surprisal ${round(nats)} nats, P ${Math.exp(-nats).toPrecision(3)}, `;
    const rank = nats === null ? "" : `rank ${numbers.rank[place]}, `;
    const of = shown[place], name = color.selectedOptions[0].textContent;
    const value = of == null || !isNaN(numbers[color.value]?.[0]) ? "" : `, ${groups[color.value] ? "unit" : name} ${round(of)}`;
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
  part.addEventListener("look", event => {
    const place = event.target.dataset.t;
    if (place !== undefined) tell(Number(place));
  });
  // Another part of the article gives a number for each token: `new CustomEvent("color", {detail: {name, values}})`.
  // The text is colored by it at once, unless `isOffer`.
  article.addEventListener("color", ({ detail: { name, values, isOffer } }) => {
    if (!given.has(name)) color.append(new Option(name, name));
    given.set(name, values);
    if (isOffer) return;
    color.value = name;
    listUnits();
    paint();
  });
  article.addEventListener("click", event => {
    const button = event.target.closest("button[data-group]");
    if (!button) return;
    choose(button.dataset.group, Number(button.dataset.unit));
    color.scrollIntoView({ block: "center" });
    location.hash = `${button.dataset.group}.${button.dataset.unit}`;
  });
  const follow = () => {
    if (!part.isConnected) return removeEventListener("hashchange", follow);  // another text is shown
    const [, name, number] = decodeURIComponent(location.hash).match(/^#(.*)\.(\d+)$/) ?? [];
    if (name) choose(name, Number(number));
  };
  addEventListener("hashchange", follow);
  listUnits();
  paint();
  tell(0);
  follow();
};

// Two models with the same tokens: the text of each can be colored by how much more it was surprised.
function compare(content) {
  const parts = [...content.querySelectorAll('[data-draw="tokens"]')], found = parts.map(numbersOf);
  if (parts.length !== 2 || found[0].token.length !== found[1].token.length) return;
  const texts = found.map(({ symbols, token }) => token.map(number => symbols[number]).join("\0"));
  if (texts[0] !== texts[1]) return;
  for (const [side, part] of parts.entries()) {
    const own = found[side].surprisal, other = found[1 - side].surprisal;
    const values = own.map((nats, place) => nats === null ? null : nats - other[place]);
    const detail = { name: "surprisal, less that beside", values, isOffer: true };
    part.closest("article").dispatchEvent(new CustomEvent("color", { detail }));
  }
}
