const nameOf = name => name || "span";

/** Returns a color for each label or, if labels form spans, for each class. */
function tonesOf(model) {
  return new Map([...new Set(model.labels.map(label => model.classOf(label)))].filter(name => name !== null)
    .map((name, k) => [name, `oklch(${k % 2 ? 0.82 : 0.89} 0.09 ${(k * 137.5 + 60) % 360})`]));
}

/** Shows the count of each class, in decreasing order; `format` formats a count. */
function showCounts(tones, counts, format) {
  byId("counts").replaceChildren(...[...counts].sort((one, other) => other[1] - one[1]).map(([name, count]) => {
    const item = element("li", element("span", nameOf(name), "chip"));
    item.firstChild.style.setProperty("--tone", tones.get(name));
    item.append(` ${format(count)}`);
    return item;
  }));
}

