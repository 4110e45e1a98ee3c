
const WORD = 32, MIN_WORDS = 512, MAX_BATCH = 128, BYTES = 16;  // bytes of a word; words of a session; sentences of a call; bytes of text per word

/** A tagger: words with labels and probabilities. */
class Model {
  #memory;
  #spans;
  #session = 0;
  #room = 0;

  constructor(memory, hasSimd) {
    this.#memory = memory;
    this.simd = hasSimd;
    this.labels = labelsOf(memory);
    this.#spans = new Spans(memory, this.labels, true);
    this.hasSpans = this.#spans.areNamed;
  }

  /** The words of each text, as in `ensue predict`. A text is a sentence: a string, or an array of words. */
  predict(texts) {
    if (!Array.isArray(texts)) throw new TypeError("the texts are not an array");
    const found = [];
    for (let k = 0; k < texts.length; k += MAX_BATCH) found.push(...this.#label(texts.slice(k, k + MAX_BATCH)));
    return found;
  }

  /** The spans of a sentence of `predict`; for labels without spans, each word. */
  spans(words) {
    const leastOf = ({ first, last }) => words.slice(first, last + 1).reduce((least, word) => Math.min(least, word.probability), 1);
    return this.#spans.of(words.map(word => word.label)).map(span => ({ ...span, probability: leastOf(span) }));
  }

  /** The class of a label without the letter of its scheme; null outside of spans. */
  classOf(label) {
    return this.#spans.classOf(label);
  }

  #label(texts) {
    const sentences = texts.map(text => typeof text === "string" ? this.#cut(text) : encodeWords(text));
    const words = sentences.flatMap(sentence => sentence.words);
    if (!words.length) return sentences.map(() => []);
    const memory = this.#memory, size = sentences.reduce((sum, { bytes }) => sum + bytes.length, 0);
    const session = this.#sessionOf(sentences.reduce((most, { words }) => Math.max(most, words.length), 0));
    const place = memory.allocate(words.length * WORD + size);
    try {
      let numbers = memory.numbers, at = place, text = place + words.length * WORD;
      for (const { bytes, words } of sentences) {
        memory.bytes(text, bytes.length).set(bytes);
        words.forEach(({ from, to }, k) => {
          numbers.setUint32(at, text + from, true);
          numbers.setUint32(at + 4, to - from, true);
          numbers.setInt32(at + 8, k === words.length - 1 ? 1 : 0, true);
          at += WORD;
        });
        text += bytes.length;
      }
      memory.check(memory.functions.label(session, place, words.length));
      [numbers, at] = [memory.numbers, place];
      return sentences.map(({ words }) => words.map(({ text, begin, end }) => {
        const word = { text, label: this.labels[numbers.getUint32(at + 12, true)], probability: numbers.getFloat64(at + 24, true), begin, end };
        at += WORD;
        return word;
      }));
    } finally {
      memory.functions.release(place);
    }
  }

  #cut(text) {
    const bytes = new TextEncoder().encode(text), places = placesOf(text, bytes.length), memory = this.#memory;
    if (!bytes.length) return { bytes, words: [] };
    const session = this.#sessionOf(Math.ceil(bytes.length / BYTES)), place = memory.put(bytes);
    let room = 0, list = 0;
    try {
      for (let count = 64; count > room;) {
        if (list) memory.functions.release(list);
        [list, room] = [0, count];
        list = memory.allocate(room * WORD);
        count = memory.check(memory.functions.cut(session, place, bytes.length, list, room));
        if (count > room) continue;
        const numbers = memory.numbers;
        return { bytes, words: Array.from({ length: count }, (_, k) => {
          const from = numbers.getUint32(list + k * WORD, true) - place, to = from + numbers.getUint32(list + k * WORD + 4, true);
          return { text: text.slice(places[from], places[to]), begin: places[from], end: places[to], from, to };
        }) };
      }
    } finally {
      if (list) memory.functions.release(list);
      memory.functions.release(place);
    }
  }

  /** Returns a session for sentences of up to `words` words. */
  #sessionOf(words) {
    if (words <= this.#room) return this.#session;
    const { functions } = this.#memory, room = Math.max(words, MIN_WORDS), size = functions.session_size(room) >>> 0;
    if (!size) throw new RangeError("a sentence is too long");
    if (this.#room) functions.release(this.#session);
    this.#room = 0;
    this.#session = this.#memory.allocate(size);
    this.#memory.check(functions.begin(this.#session, room));
    this.#room = room;
    return this.#session;
  }
}

/** Concatenates the words of a sentence in UTF-8; returns the bytes, and the words with their offsets. */
function encodeWords(words) {
  if (!Array.isArray(words)) throw new TypeError("a text is neither a string nor an array of words");
  const pieces = words.map(word => new TextEncoder().encode(checkedText(word)));
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let from = 0;
  return { bytes, words: pieces.map((piece, k) => {
    bytes.set(piece, from);
    from += piece.length;
    return { text: words[k], begin: null, end: null, from: from - piece.length, to: from };
  }) };
}
