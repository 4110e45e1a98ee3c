// Units that are on exactly in a selected range of tokens, and other ranges in which many of these units are on.
drawers.selection = (part, _, article) => {
  const form = part.querySelector("form"), units = part.querySelector(".units"), ranges = part.querySelector(".ranges");
  const text = article.querySelector('[data-draw="tokens"]'), tokens = [...text.querySelectorAll(".tokens .w")];
  const { groups, tokens: size } = numbersOf(text);
  for (const group of groups) group.values = bytes(group.values);

  // The units that are on exactly in [start, end), sorted by the margin between the range and its neighbors.
  function chosenUnits(start, end, threshold) {
    const chosen = [];
    for (const group of groups) if (!form.kind.value || form.kind.value === group.name) {
      for (const [row, number] of group.units.entries()) {
        const low = group.low[row], step = (group.high[row] - low) / 255;
        const value = place => low + step * group.values[row * size + place];
        let inside = Infinity, beside = -Infinity;  // the minimum, and the maximum of the neighbors
        for (let place = start; place < end; place++) inside = Math.min(inside, value(place));
        for (const place of [start - 1, end]) if (place >= 0 && place < size) beside = Math.max(beside, value(place));
        if (inside < threshold || beside >= threshold) continue;
        chosen.push({ name: group.name, number, inside, beside, isOn: place => value(place) >= threshold });
      }
    }
    const margin = ({ inside, beside }) => beside === -Infinity ? inside : inside - beside;
    return chosen.sort((a, b) => margin(b) - margin(a));
  }

  // Ranges [start, end, number of units that are on exactly there] without overlap, sorted by this number.
  function matches(chosen, taken) {
    const counts = new Map();
    for (const { isOn } of chosen) for (let end = 0; end < size; end++) {
      const start = end;
      while (end < size && isOn(end)) end++;
      if (end > start) counts.set(`${start} ${end}`, (counts.get(`${start} ${end}`) ?? 0) + 1);
    }
    const all = [...counts].map(([range, count]) => [...range.split(" ").map(Number), count]), ranges = [taken];
    for (const match of all.sort((a, b) => b[2] - a[2] || a[0] - b[0] || a[1] - b[1])) {
      if (ranges.length > 20) break;
      if (ranges.every(([start, end]) => match[1] <= start || end <= match[0])) ranges.push(match);
    }
    return ranges.slice(1);
  }

  function mark(kind, start, end) {
    for (const token of text.querySelectorAll(`.${kind}`)) token.classList.remove(kind);
    for (const token of tokens.slice(start, end)) token.classList.add(kind);
  }

  function find() {
    const start = form.from.valueAsNumber - 1, end = form.to.valueAsNumber, threshold = form.threshold.valueAsNumber;
    mark("like", 0, 0);
    if (!(0 <= start && start < end && end <= size) || isNaN(threshold)) {
      ranges.replaceChildren();
      return void (units.textContent = `The text has tokens 1 to ${size}.`);
    }
    mark("selected", start, end);
    const chosen = chosenUnits(start, end, threshold);
    units.replaceChildren(`${chosen.length} units are on exactly there. `, ...chosen.slice(0, 24).map(unit => {
      const button = element("button", "", `${unit.name} ${unit.number} `);
      Object.assign(button.dataset, { group: unit.name, unit: unit.number });
      button.append(element("b", "", round(unit.inside, 2)));
      button.title = `at least ${round(unit.inside)}, beside ${isFinite(unit.beside) ? round(unit.beside) : "nothing"}`;
      return button;
    }));
    ranges.replaceChildren(...matches(chosen, [start, end]).map(([start, end, count]) => {
      const words = tokens.slice(start, Math.min(end, start + 12)).map(token => token.textContent).join("");
      const button = element("button", "", `${start + 1}–${end} “${words}” `);
      button.append(element("b", "", `${count} of ${chosen.length}`));
      button.addEventListener("click", () => {
        mark("like", start, end);
        tokens[start].scrollIntoView({ block: "center" });
      });
      return button;
    }));
  }

  text.addEventListener("mouseup", () => {
    const { anchorNode, focusNode, isCollapsed } = getSelection();
    const ends = [anchorNode, focusNode].map(node => tokens.indexOf(node?.parentElement?.closest(".w")));
    if (isCollapsed || ends.includes(-1)) return;
    form.from.value = 1 + Math.min(...ends);
    form.to.value = Math.min(size, 1 + Math.max(...ends));
    find();
  });
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("input", find);
  find();
  mark("selected", 0, 0);  // until something is selected
};
