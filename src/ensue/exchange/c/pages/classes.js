
const NUMBER = 4, TOO_LONG = -7, TOGETHER = 64;  // bytes of a number; a code of NAME.h; texts

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
    const parts = texts.flatMap(text => textsOf(text, this.#texts)), found = [], work = { place: 0, room: 0 };
    try {
      for (let k = 0; k < parts.length; k += TOGETHER * this.#texts)
        this.#classify(parts.slice(k, k + TOGETHER * this.#texts), atLeast, work, found);
      return found;
    } finally {
      if (work.room) this.#memory.functions.release(work.place);
    }
  }

  /** Appends what is said of some texts, one behind the other. */
  #classify(parts, atLeast, work, found) {
    const memory = this.#memory, { functions } = memory, texts = parts.length / this.#texts;
    const numbers = 2 + 2 * this.labels.length, said = memory.allocate(texts * numbers * NUMBER);
    let place = 0, sizes;
    try {
      ({ place, sizes } = memory.putTexts(parts));
      for (let done = 0, times = 1; done < texts;) {
        this.#enlarge(work, times * sumOf(sizes.slice(done * this.#texts, (done + 1) * this.#texts)));
        const at = [place + done * this.#texts * TEXT, texts - done, atLeast, said + done * numbers * NUMBER];
        const count = functions.classify(work.place, work.room, ...at);
        if (count === TOO_LONG && times < 4) {  // very short words need more
          times = 4;
        } else {
          done += memory.check(count);
          times = 1;
        }
      }
      const whole = new Int32Array(functions.memory.buffer, said, texts * numbers);
      const shares = new Float32Array(functions.memory.buffer, said, texts * numbers);
      for (let at = 0; at < whole.length; at += numbers) found.push(this.#answer(whole, shares, at));
    } finally {
      functions.release(place);
      functions.release(said);
    }
  }

  /** A text's answer, which begins at a number of these. */
  #answer(whole, shares, at) {
    const words = whole[at], given = whole[at + 1], first = at + 2 + this.labels.length, labels = [], probabilities = [];
    for (let k = 0; k < given; k++) labels.push(this.labels[whole[at + 2 + k]]);
    for (let k = 0; k < this.labels.length; k++) probabilities.push(shares[first + k]);
    const probability = given ? probabilities[whole[at + 2]] : Math.max(...probabilities);
    return { label: given ? labels[0] : null, probability, labels, probabilities, words };
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
