const nameOf = name => name || "span";

/** A color for each label, or each class of spans. */
function tonesOf(model) {
  return new Map([...new Set(model.labels.map(label => model.classOf(label)))].filter(name => name !== null)
    .map((name, k) => [name, `oklch(${k % 2 ? 0.82 : 0.89} 0.09 ${(k * 137.5 + 60) % 360})`]));
}

/** Shows the frequency of each class, in decreasing order. */
function showCounts(tones, counts, written) {
  of("counts").replaceChildren(...[...counts].sort((one, other) => other[1] - one[1]).map(([name, count]) => {
    const item = element("li", element("span", nameOf(name), "chip"));
    item.firstChild.style.setProperty("--tone", tones.get(name));
    item.append(` ${written(count)}`);
    return item;
  }));
}

