
const TOKEN = 48, PIECE = 4096;  // bytes of a token; bytes per call of `feed`

/** A language model. Its state is in `State` objects, so that texts can be read in any order. */
class Model {
  #memory;
  #texts = new Map();

  constructor(memory, hasSimd) {
    this.#memory = memory;
    this.simd = hasSimd;
    this.vocabularySize = memory.functions.vocabulary();
    this.context = memory.functions.context();
  }

  /** Returns the initial state. A seed gives the same tokens as `ensue generate --seed`. */
  begin(seed = drawSeed()) {
    return new State(this.#memory, this.#texts, place => this.#memory.functions.begin(place, checkedSeed(seed)));
  }

  /** Returns the state with the bytes of `state.save()`. */
  restore(bytes) {
    const { functions } = this.#memory, size = functions.state_size();
    if (!(bytes instanceof Uint8Array) || bytes.length !== size) this.#memory.check(BAD_STATE);
    return new State(this.#memory, this.#texts, place => {
      this.#memory.bytes(place, size).set(bytes);
      return functions.check(place);
    });
  }

  /** Yields the tokens of a text with their surprisals; `begin` and `end` are offsets of the string. */
  *read(text) {
    const bytes = new TextEncoder().encode(checkedText(text)), places = placesOf(text, bytes.length);
    const state = this.begin(0);
    try {
      for (const token of state.feeding(bytes, true)) {
        while (token.end < bytes.length && token.end > token.begin && places[token.end] === places[token.end - 1]) token.end++;
        [token.begin, token.end] = [places[token.begin], places[token.end]];
        yield token;
      }
    } finally {
      state.close();
    }
  }

  /** Returns all tokens of a text, as in `ensue score`. */
  score(text) {
    return [...this.read(text)];
  }

  /** Yields the continuation of a prompt, as `ensue generate`. Without a seed the seed is random. */
  *generate(prompt = "", { maxTokens = 200, seed = drawSeed(), ...sampling } = {}) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true }), state = this.begin(seed);
    try {
      for (const _ of state.feeding(new TextEncoder().encode(checkedText(prompt)), true));
      for (let k = 0; k < maxTokens; k++) {
        const token = state.next(sampling), piece = decoder.decode(token.bytes, { stream: true });
        if (piece) yield (token.blank ? " " : "") + piece;
      }
      const rest = decoder.decode();
      if (rest) yield rest;
    } finally {
      state.close();
    }
  }
}

const BAD_STATE = -5;

/** The state of a text. `save` returns the bytes of the state, which another process can restore. */
class State {
  #memory;
  #texts;
  #place;

  constructor(memory, texts, fill) {
    [this.#memory, this.#texts] = [memory, texts];
    this.#place = memory.allocate(memory.functions.state_size());
    memory.forgotten.register(this, this.#place, this);
    try {
      memory.check(fill(this.#place));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Returns the complete tokens. `begin` and `end` count bytes since the initial state. */
  feed(text) {
    return [...this.feeding(typeof text === "string" ? new TextEncoder().encode(text) : checkedBytes(text), false)];
  }

  /** Ends the text; returns the tokens that were incomplete. */
  end() {
    return [...this.feeding(new Uint8Array(), true)];
  }

  /** Yields the tokens of `feed`, and then those of `end` if `isLast`. An iteration that stops early leaves bytes unread. */
  *feeding(bytes, isLast) {
    const { functions } = this.#memory;
    for (let at = 0; at < bytes.length; at += PIECE) {
      const piece = bytes.subarray(at, at + PIECE), place = this.#memory.put(piece);
      try {
        for (let used = 0; used < piece.length;) {
          const count = this.#memory.check(functions.feed(this.#checked, place + used, piece.length - used));
          used += functions.used();
          yield* this.#tokens(count);
        }
      } finally {
        functions.release(place);
      }
    }
    for (let count = isLast; count;) {
      count = this.#memory.check(functions.feed(this.#checked, 0, 0));
      yield* this.#tokens(count);
    }
  }

  /** Samples the next token and reads it. */
  next({ temperature = 1, topK = 0, topP = 0, minP = 0, repetitionPenalty = 0, ...others } = {}) {
    const [unknown] = Object.keys(others);
    if (unknown) throw new TypeError(`no option "${unknown}"`);
    if (!Number.isInteger(topK) || topK < 0) throw new RangeError(`topK = ${topK} is not a whole number from 0`);
    const { functions } = this.#memory;
    this.#memory.check(functions.next(this.#checked, temperature, topK, topP, minP, repetitionPenalty));
    return this.#tokens(1)[0];
  }

  /** Returns the bytes of the state. */
  save() {
    return this.#memory.bytes(this.#checked, this.#memory.functions.state_size()).slice();
  }

  /** Frees the memory. The memory of an unreachable state is freed by garbage collection. */
  close() {
    if (!this.#place) return;
    this.#memory.forgotten.unregister(this);
    this.#memory.functions.release(this.#place);
    this.#place = 0;
  }

  get #checked() {
    if (!this.#place) throw new Error("the state is closed");
    return this.#place;
  }

  #tokens(count) {
    const numbers = this.#memory.numbers, first = this.#memory.functions.tokens();
    return Array.from({ length: count }, (_, k) => this.#token(numbers, first + k * TOKEN));
  }

  #token(numbers, place) {
    const at = numbers.getUint32(place + 32, true), { bytes, text } = this.#texts.get(at) ?? this.#read(numbers, place, at);
    return {
      id: numbers.getUint32(place, true), text, bytes, isUnknown: numbers.getInt32(place + 4, true) !== 0,
      nats: numbers.getFloat64(place + 24, true), begin: readInteger(numbers, place + 8), end: readInteger(numbers, place + 16),
      blank: numbers.getInt32(place + 40, true) !== 0,
    };
  }

  #read(numbers, place, at) {
    const bytes = this.#memory.bytes(at, numbers.getUint32(place + 36, true)).slice();
    const found = { bytes, text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) };
    this.#texts.set(at, found);
    return found;
  }
}

function readInteger(numbers, place) {
  return numbers.getUint32(place, true) + 2 ** 32 * numbers.getUint32(place + 4, true);
}

function checkedBytes(bytes) {
  if (!(bytes instanceof Uint8Array)) throw new TypeError("the text is neither a string nor a Uint8Array");
  return bytes;
}

function drawSeed() {
  return crypto.getRandomValues(new BigUint64Array(1))[0] >> 1n;
}

function checkedSeed(seed) {
  if (typeof seed !== "bigint" && !Number.isSafeInteger(seed)) throw new TypeError("the seed is not a whole number");
  if (seed < 0 || seed >= 1n << 63n) throw new RangeError("the seed is not from 0 to 2^63 - 1");
  return BigInt(seed);
}
