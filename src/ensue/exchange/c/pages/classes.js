
const TEXT = 8, NUMBER = 4, TOO_LONG = -7;  // bytes of the place and size of a text, and of a number; a code of NAME.h

/** A classifier: the labels of texts, with the probabilities of all labels. */
class Model {
  #memory;
  #texts;

  constructor(memory, isWide) {
    this.#memory = memory;
    this.simd = isWide;
    const { functions } = memory;
    this.labels = Array.from({ length: functions.labels() }, (_, id) => memory.text(functions.label_name(id)));
    this.#texts = functions.texts();
    this.isPair = this.#texts === 2;
    this.isMultiple = functions.is_multiple() === 1;
  }

  /** The labels of each text, as `ensue predict` gives them. No label is given that is less probable than `atLeast`. */
  predict(texts, { atLeast = 0, ...others } = {}) {
    if (!Array.isArray(texts)) throw new TypeError("the texts are no array");
    const [unknown] = Object.keys(others);
    if (unknown) throw new TypeError(`no option "${unknown}"`);
    if (!(typeof atLeast === "number" && atLeast >= 0 && atLeast <= 1)) throw new RangeError(`atLeast = ${atLeast} is no number from 0 to 1`);
    const all = texts.map(text => this.#bytesOf(text)), work = { place: 0, room: 0 };
    try {
      return all.map(parts => this.#classified(parts, atLeast, work));
    } finally {
      if (work.room) this.#memory.functions.release(work.place);
    }
  }

  /** A text, or two of them, in UTF-8. */
  #bytesOf(text) {
    if (this.isPair !== Array.isArray(text)) throw new TypeError(this.isPair ? "a pair is no array" : "the text is no string");
    const parts = this.isPair ? text : [text];
    if (parts.length !== this.#texts) throw new TypeError("a pair does not have two texts");
    return parts.map(part => new TextEncoder().encode(checkedText(part)));
  }

  #classified(parts, atLeast, work) {
    const memory = this.#memory, { functions } = memory, count = this.labels.length;
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    const place = memory.allocate(this.#texts * TEXT + 2 * count * NUMBER + size);
    try {
      const shares = place + this.#texts * TEXT, labels = shares + count * NUMBER;
      let numbers = memory.numbers, at = labels + count * NUMBER;
      parts.forEach((part, k) => {
        memory.bytes(at, part.length).set(part);
        numbers.setUint32(place + k * TEXT, at, true);
        numbers.setUint32(place + k * TEXT + 4, part.length, true);
        at += part.length;
      });
      let words = TOO_LONG;
      for (let times = 1; words === TOO_LONG && times <= 4; times *= 4) {  // very short words need more
        this.#enlarge(work, times * size);
        words = functions.classify(work.place, work.room, place, shares);
      }
      memory.check(words);
      const chosen = memory.check(functions.choose(shares, atLeast, labels));
      numbers = memory.numbers;
      const probabilities = Array.from({ length: count }, (_, k) => numbers.getFloat32(shares + k * NUMBER, true));
      const ids = Array.from({ length: chosen }, (_, k) => numbers.getUint32(labels + k * NUMBER, true));
      const probability = chosen ? probabilities[ids[0]] : probabilities.reduce((most, share) => Math.max(most, share));
      return { label: chosen ? this.labels[ids[0]] : null, probability, labels: ids.map(id => this.labels[id]), probabilities, words };
    } finally {
      functions.release(place);
    }
  }

  /** Makes the memory of a call enough for so many bytes. */
  #enlarge(work, bytes) {
    const { functions } = this.#memory, size = functions.work_size(bytes) >>> 0;
    if (!size) throw new RangeError("a text is too long");
    if (size <= work.room) return;
    if (work.room) functions.release(work.place);
    work.room = 0;
    work.place = this.#memory.allocate(size);
    work.room = size;
  }
}
