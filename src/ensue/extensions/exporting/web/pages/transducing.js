
const ANSWER = 32, MAX_ANSWERS = 64, MAX_BATCH = 16, MIN_BYTES = 1024;  // bytes of an output; outputs and sources per call; bytes of a session
const OFFSETS = { beams: 0, nBest: 4, lengthPenalty: 8, minTokens: 16, maxTokens: 20, noRepeatNgram: 24 };  // in the struct NAME_search

/** An encoder-decoder: the output for a source. */
class Model {
  #memory;
  #session = { place: 0, bytes: 0, tokens: 0 };

  constructor(memory, hasSimd) {
    this.#memory = memory;
    this.simd = hasSimd;
    this.numTexts = memory.functions.texts();
    const place = memory.functions.search(), { numbers } = memory;
    this.search = Object.fromEntries(Object.entries(OFFSETS).map(([name, at]) =>
      [name, name === "lengthPenalty" ? numbers.getFloat64(place + at, true) : numbers.getUint32(place + at, true)]));
  }

  /** The output for each source, as in `ensue predict`. */
  predict(sources, search = {}) {
    return [...this.answers(sources, search)];
  }

  /** The outputs one by one, computed in batches. */
  *answers(sources, search = {}) {
    if (!Array.isArray(sources)) throw new TypeError("the sources are not an array");
    const how = this.#withDefaults(search), all = sources.map(source => textsOf(source, this.numTexts));
    for (let done = 0; done < all.length;) {
      const found = this.#transduce(all.slice(done, done + MAX_BATCH), how);
      done += found.length;
      yield* found;
    }
  }

  /** Returns the search options of the run with these changes. Throws for invalid options. */
  #withDefaults(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (!(name in OFFSETS)) throw new TypeError(`no option "${name}"`);
      const isRight = name === "lengthPenalty" ? typeof value === "number" : Number.isInteger(value) && value >= 0 && value < 2 ** 32;
      if (!isRight) throw new RangeError(`${name} = ${value} is not a ${name === "lengthPenalty" ? "number" : "whole number from 0"}`);
    }
    return { ...this.search, ...changes };
  }

  /** Returns the outputs of the first sources, as many as one call computes. */
  #transduce(sources, how) {
    const memory = this.#memory, { functions } = memory;
    const place = memory.allocate(MAX_ANSWERS * ANSWER);
    let texts = 0, sizes;
    try {
      ({ place: texts, sizes } = memory.putTexts(sources.flat()));
      const session = this.#sessionOf(sumOf(sizes), how.maxTokens);
      const search = functions.search();
      for (const [name, at] of Object.entries(OFFSETS)) {
        if (name === "lengthPenalty") memory.numbers.setFloat64(search + at, how[name], true);
        else memory.numbers.setUint32(search + at, how[name], true);
      }
      const count = memory.check(functions.transduce(session, texts, sources.length, place));
      return Array.from({ length: count }, (_, k) => {
        const every = Array.from({ length: how.nBest }, (_, n) => this.#read(place + (k * how.nBest + n) * ANSWER));
        const [best, ...others] = every.filter(answer => answer);
        return { ...best, others };
      });
    } finally {
      functions.release(texts);
      functions.release(place);
    }
  }

  /** Returns the output at an address; null if its text is NULL. */
  #read(place) {
    const { numbers } = this.#memory, text = numbers.getUint32(place, true);
    if (!text) return null;
    const bytes = this.#memory.bytes(text, numbers.getUint32(place + 4, true)), logProbability = numbers.getFloat64(place + 16, true);
    return {
      text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes), probability: Math.exp(logProbability), logProbability,
      score: numbers.getFloat64(place + 8, true), isComplete: numbers.getInt32(place + 24, true) !== 0,
    };
  }

  /** Returns a session for sources and outputs of up to these numbers of bytes and tokens. */
  #sessionOf(bytes, tokens) {
    const { functions } = this.#memory, held = this.#session;
    if (bytes <= held.bytes && tokens <= held.tokens) return held.place;
    const room = [Math.max(bytes, held.bytes, MIN_BYTES), Math.max(tokens, held.tokens)], size = functions.session_size(...room) >>> 0;
    if (!size) throw new RangeError("a text is too long, or maxTokens too large");
    if (held.place) functions.release(held.place);
    this.#session = { place: 0, bytes: 0, tokens: 0 };
    const place = this.#memory.allocate(size);
    this.#memory.check(functions.begin(place, ...room));
    this.#session = { place, bytes: room[0], tokens: room[1] };
    return place;
  }
}
