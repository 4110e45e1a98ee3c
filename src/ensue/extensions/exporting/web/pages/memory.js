// A model of ensue in WebAssembly. This file includes the weights, and needs no network and no other files.
//
//     import { load } from "./NAME.js";
//     const model = await load();
//
// It runs in browsers, in workers, in Node, Deno and Bun. NAME.d.ts has the types, README.md has examples.

const TEXT = 8, ENCODER = new TextEncoder();  // bytes of the address and size of a text

/** Reads the weights and compiles the code: without SIMD instructions if `simd` is false or the engine does not support
 * them. The results are the same. */
export async function load({ simd = true } = {}) {
  const code = bytesOf(SIMD), hasSimd = simd && WebAssembly.validate(code);
  const { instance } = await WebAssembly.instantiate(hasSimd ? code : bytesOf(PLAIN));
  const memory = new Memory(instance.exports);
  const weights = bytesOf(WEIGHTS);
  memory.check(memory.functions.open(memory.put(weights), weights.length));
  return new Model(memory, hasSimd);
}

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}

/** The functions of the C file, and their memory. */
class Memory {
  constructor(functions) {
    this.functions = functions;
    functions._initialize();
    this.forgotten = new FinalizationRegistry(place => functions.release(place));
  }

  /** A view of bytes at an address, valid until memory is allocated. */
  bytes(place, count) {
    return new Uint8Array(this.functions.memory.buffer, place >>> 0, count);  // addresses above 2 GiB are negative
  }

  /** A view of 32-bit numbers at an address, valid until memory is allocated. */
  reals(place, count) {
    return new Float32Array(this.functions.memory.buffer, place >>> 0, count);
  }

  get numbers() {
    return new DataView(this.functions.memory.buffer);
  }

  allocate(size) {
    const place = this.functions.allocate(size) >>> 0;
    if (!place) throw new RangeError("not enough memory");
    return place;
  }

  /** Grows the memory of `work` to `size` bytes; the content is lost. */
  enlarge(work, size) {
    if (size <= work.room) return;
    if (work.room) this.functions.release(work.place);
    work.room = 0;
    work.place = this.allocate(size);
    work.room = size;
  }

  put(bytes) {
    const place = this.allocate(bytes.length || 1);
    this.bytes(place, bytes.length).set(bytes);
    return place;
  }

  /** Puts texts in UTF-8 into memory as an array of NAME_text; returns its address and the size of each text. */
  putTexts(texts) {
    const begin = texts.length * TEXT, room = begin + texts.reduce((sum, text) => sum + 3 * text.length, 0);
    const place = this.allocate(room), bytes = this.bytes(place, room), { numbers } = this;
    let at = begin;
    const sizes = texts.map((text, k) => {
      const { written } = ENCODER.encodeInto(text, bytes.subarray(at));
      numbers.setUint32(place + k * TEXT, place + at, true);
      numbers.setUint32(place + k * TEXT + 4, written, true);
      at += written;
      return written;
    });
    return { place, sizes };
  }

  /** Throws the description of an error code. */
  check(code) {
    if (code >= 0) return code;
    throw new Error(this.text(this.functions.message(code)));
  }

  /** Reads a zero-terminated text. */
  text(place) {
    const bytes = new Uint8Array(this.functions.memory.buffer);
    const begin = place >>> 0;
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.slice(begin, bytes.indexOf(0, begin)));
  }
}

/** Returns the texts of an input as an array: a string if `count` is 1, otherwise an array of `count` strings. */
function textsOf(input, count) {
  if (Array.isArray(input) !== count > 1) throw new TypeError(count > 1 ? `the ${count} texts are not an array` : "the text is not a string");
  const parts = count > 1 ? input : [input];
  if (parts.length !== count) throw new TypeError(`expected ${count} texts, found ${parts.length}`);
  return parts.map(checkedText);
}

/** Returns the sum of sizes. */
function sumOf(sizes) {
  return sizes.reduce((sum, size) => sum + size, 0);
}

function checkedText(text) {
  if (typeof text !== "string") throw new TypeError("the text is not a string");
  return text;
}

/** Returns the string index of the character at each byte of the UTF-8 text, and then the length of the string. */
function placesOf(text, size) {
  const found = new Uint32Array(size + 1);
  let byte = 0, place = 0;
  for (const character of text) {
    const point = character.codePointAt(0), end = byte + (point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4);
    while (byte < end) found[byte++] = place;
    place += character.length;
  }
  found[size] = place;
  return found;
}
