// A text whose tokens are colored by numbers: surprisals, the values of a unit, or a series of another section.
drawers.tokens = (part, numbers, article) => {
  const find = kind => part.querySelector(`.${kind}`);
  const color = find("color"), unit = find("unit"), range = find("range"), description = find("told");
  const tokens = [...part.querySelectorAll(".tokens .w")];
  const groups = numbers.groups;
  const received = new Map();  // series of other sections by name
  const draw = curve(find("curve"), tokens);
  let shown = [];

  function unitValues(group, number) {
    const row = group.units.indexOf(number), size = numbers.tokens, low = group.low[row], high = group.high[row];
    group.bytes ??= bytes(group.values);  // decoded for the first unit
    return [...group.bytes.subarray(row * size, (row + 1) * size)].map(value => low + value / 255 * (high - low));
  }

  function paint() {
    const group = groups[color.value], other = received.get(color.value), signed = group || other;
    unit.parentElement.hidden = !group;
    shown = group ? unitValues(group, Number(unit.value)) : other ?? numbers[color.value];
    let low = Infinity, high = -Infinity;
    for (const value of shown) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
    const full = signed ? Math.max(Math.abs(low), Math.abs(high)) : numbers.full;
    const [from, to] = group && low * high > 0 ? [low, high] : [0, full];  // one sign: minimum to maximum
    for (const [place, token] of tokens.entries()) {
      const value = shown[place] ?? 0, above = group && low * high > 0 ? value - from : Math.abs(value);
      const strength = to > from ? 80 * Math.min(1, above / (to - from)) : 0;
      token.classList.toggle("for", value >= 0);
      token.classList.toggle("against", value < 0);
      token.style.setProperty("--s", `${strength.toFixed(0)}%`);
    }
    range.textContent = signed ? `${round(low)} to ${round(high)}` : `no color: 0, full color: ${round(full, 2)} nats`;
    draw(color.selectedOptions[0].textContent + (group ? ` ${unit.value}` : ""), shown);
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

  function describe(place) {
    const options = numbers.options[place];
    if (!options) return;
    const line = element("div", "", ""), nats = numbers.surprisal[place];
    line.append(element("b", "", numbers.symbols[numbers.token[place]] ?? "next"));
    const p = nats === null ? "" : `surprisal ${round(nats)} nats, P ${Math.exp(-nats).toPrecision(3)}, `;
    const rank = nats === null ? "" : `rank ${numbers.rank[place]}, `;
    const number = shown[place], name = color.selectedOptions[0].textContent;
    const value = number == null || !isNaN(numbers[color.value]?.[0]) ? "" : `, ${groups[color.value] ? "unit" : name} ${round(number)}`;
    line.append(` ${p}${rank}entropy ${round(numbers.entropy[place])} nats${value}`);
    const bars = options.map(([symbol, probability]) => {
      const bar = element("div", "option", ""), share = element("span", "share", "");
      share.style.width = `${(100 * probability).toFixed(1)}px`;
      bar.append(element("bdi", "", numbers.symbols[symbol]), element("span", "faint", probability.toFixed(4)), share);
      return bar;
    });
    description.replaceChildren(line, ...bars);
  }

  color.addEventListener("change", () => { listUnits(); paint(); });
  unit.addEventListener("change", paint);
  part.addEventListener("look", event => {
    const place = event.target.dataset.t;
    if (place !== undefined) describe(Number(place));
  });
  // Another section of the article sends a number for each token: `new CustomEvent("color", {detail: {name, values}})`.
  // The text is colored by it at once, unless `isOffer`.
  article.addEventListener("color", ({ detail: { name, values, isOffer } }) => {
    if (!received.has(name)) color.append(new Option(name, name));
    received.set(name, values);
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
  describe(0);
  follow();
};

// Two models with the same tokens: each text can be colored by the difference of the surprisals.
function compare(content) {
  const parts = [...content.querySelectorAll('[data-draw="tokens"]')], numbers = parts.map(numbersOf);
  if (parts.length !== 2 || numbers[0].token.length !== numbers[1].token.length) return;
  const texts = numbers.map(({ symbols, token }) => token.map(number => symbols[number]).join("\0"));
  if (texts[0] !== texts[1]) return;
  for (const [side, part] of parts.entries()) {
    const surprisal = numbers[side].surprisal, other = numbers[1 - side].surprisal;
    const values = surprisal.map((nats, place) => nats === null ? null : nats - other[place]);
    const detail = { name: "surprisal, less that beside", values, isOffer: true };
    part.closest("article").dispatchEvent(new CustomEvent("color", { detail }));
  }
}
