
const TOO_LONG = -7, MAX_BATCH = 64;  // an error code of NAME.h; texts per call

/** A classifier: the labels of texts, with the probabilities of all labels. */
class Model {
  #memory;
  #texts;

  constructor(memory, hasSimd) {
    this.#memory = memory;
    this.simd = hasSimd;
    const { functions } = memory;
    this.labels = labelsOf(memory);
    this.#texts = functions.texts();
    this.isPair = this.#texts === 2;
    this.isMultiple = functions.is_multiple() === 1;
  }

  /** The labels of each text, as in `ensue predict`. Labels with a probability below `atLeast` are left out. */
  predict(texts, options) {
    if (!Array.isArray(texts)) throw new TypeError("the texts are not an array");
    const atLeast = checkedAtLeast(options);
    const parts = texts.flatMap(text => textsOf(text, this.#texts)), found = [], work = { place: 0, room: 0 };
    try {
      for (let k = 0; k < parts.length; k += MAX_BATCH * this.#texts)
        this.#classify(parts.slice(k, k + MAX_BATCH * this.#texts), atLeast, work, found);
      return found;
    } finally {
      if (work.room) this.#memory.functions.release(work.place);
    }
  }

  /** Appends the outputs of some texts. */
  #classify(parts, atLeast, work, found) {
    const memory = this.#memory, { functions } = memory, texts = parts.length / this.#texts;
    const each = outputSize(1, this.labels), output = memory.allocate(texts * each);
    let place = 0, sizes;
    try {
      ({ place, sizes } = memory.putTexts(parts));
      for (let done = 0, times = 1; done < texts;) {
        this.#enlarge(work, times * sumOf(sizes.slice(done * this.#texts, (done + 1) * this.#texts)));
        const at = [place + done * this.#texts * TEXT, texts - done, atLeast, output + done * each];
        const count = functions.classify(work.place, work.room, ...at);
        if (count === TOO_LONG && times < 4) {  // very short words need more memory
          times = 4;
        } else {
          done += memory.check(count);
          times = 1;
        }
      }
      found.push(...choicesAt(memory, output, texts, this.labels, "words"));
    } finally {
      functions.release(place);
      functions.release(output);
    }
  }

  /** Grows the memory of a call for texts with this total size in bytes. */
  #enlarge(work, bytes) {
    const { functions } = this.#memory, size = functions.work_size(bytes) >>> 0;
    if (!size) throw new RangeError("a text is too long");
    this.#memory.enlarge(work, size);
  }
}
