
/** Spans from labels. With `apart`, each plain label is a span; otherwise equal neighbors form a span. */
class Spans {
  #sides;
  #outside;

  constructor(memory, labels, apart) {
    const { functions } = memory;
    this.areNamed = functions.has_spans() === 1;
    this.#outside = this.areNamed ? labels[0] : null;
    this.#sides = new Map(labels.map((label, id) => [label, this.areNamed || !apart ? functions.sides(id) : 3]));
  }

  /** The class of a label without the letter of its scheme; null outside of spans. */
  classOf(label) {
    if (!this.areNamed) return label;
    return label === this.#outside ? null : label.includes("-") ? label.slice(label.indexOf("-") + 1) : "";
  }

  /** Returns the class, the first index and the last index of each span. */
  of(labels) {
    const found = [];
    let before = 0;
    labels.forEach((name, place) => {
      const sides = this.#sides.get(name), last = found.at(-1), label = this.classOf(name);
      if (label === null) return;
      if (last?.last === place - 1 && last.label === label && !(before & 2) && !(sides & 1)) last.last = place;
      else found.push({ label, first: place, last: place });
      before = sides;
    });
    return found;
  }
}
