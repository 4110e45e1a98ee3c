
const TOKEN = 48, PIECE = 4096;  // bytes of a token, and of what is fed at once

/** A language model. What it reads is in states, so that many texts can be read by turns. */
class Model {
  #memory;
  #texts = new Map();

  constructor(memory, isWide) {
    this.#memory = memory;
    this.simd = isWide;
    this.vocabularySize = memory.functions.vocabulary();
    this.context = memory.functions.context();
  }

  /** The state before a text. The same seed draws the same tokens, those of `ensue generate --seed`. */
  begin(seed = drawnSeed()) {
    return new State(this.#memory, this.#texts, place => this.#memory.functions.begin(place, wholeSeed(seed)));
  }

  /** The state of which `state.save()` gave the bytes. */
  restore(bytes) {
    const { functions } = this.#memory, size = functions.state_size();
    if (!(bytes instanceof Uint8Array) || bytes.length !== size) this.#memory.check(BAD_STATE);
    return new State(this.#memory, this.#texts, place => {
      this.#memory.bytes(place, size).set(bytes);
      return functions.check(place);
    });
  }

  /** The tokens of a text one by one, with their surprisals; `begin` and `end` are places in the string. */
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

  /** All tokens of a text, as `ensue score` prints them. */
  score(text) {
    return [...this.read(text)];
  }

  /** The text that goes on from a prompt, in pieces, as `ensue generate` writes it. Without a seed it differs each time. */
  *generate(prompt = "", { maxTokens = 200, seed = drawnSeed(), ...sampling } = {}) {
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

/** What a model has read. It is a value: `save` gives its bytes, from which another program can go on. */
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

  /** Reads on: the tokens that are complete. `begin` and `end` count bytes since the state was begun. */
  feed(text) {
    return [...this.feeding(typeof text === "string" ? new TextEncoder().encode(text) : checkedBytes(text), false)];
  }

  /** Ends the text: the tokens that were waiting for more. */
  end() {
    return [...this.feeding(new Uint8Array(), true)];
  }

  /** As `feed`, and then as `end` if `isLast`, token by token. All are read, or those that are asked for. */
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

  /** Draws the next token, and reads it. */
  next({ temperature = 1, topK = 0, topP = 0, minP = 0, repetitionPenalty = 0, ...others } = {}) {
    const [unknown] = Object.keys(others);
    if (unknown) throw new TypeError(`no option "${unknown}"`);
    if (!Number.isInteger(topK) || topK < 0) throw new RangeError(`topK = ${topK} is no whole number from 0`);
    const { functions } = this.#memory;
    this.#memory.check(functions.next(this.#checked, temperature, topK, topP, minP, repetitionPenalty));
    return this.#tokens(1)[0];
  }

  /** Its bytes. */
  save() {
    return this.#memory.bytes(this.#checked, this.#memory.functions.state_size()).slice();
  }

  /** Gives its memory back. A state that is forgotten gives it back some time later. */
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
      nats: numbers.getFloat64(place + 24, true), begin: whole(numbers, place + 8), end: whole(numbers, place + 16),
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

function whole(numbers, place) {
  return numbers.getUint32(place, true) + 2 ** 32 * numbers.getUint32(place + 4, true);
}

function checkedBytes(bytes) {
  if (!(bytes instanceof Uint8Array)) throw new TypeError("the text is neither a string nor a Uint8Array");
  return bytes;
}

function drawnSeed() {
  return crypto.getRandomValues(new BigUint64Array(1))[0] >> 1n;
}

function wholeSeed(seed) {
  if (typeof seed !== "bigint" && !Number.isSafeInteger(seed)) throw new TypeError("the seed is no whole number");
  if (seed < 0 || seed >= 1n << 63n) throw new RangeError("the seed is not from 0 to 2^63 - 1");
  return BigInt(seed);
}
