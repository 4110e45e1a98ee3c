// A model of ensue in WebAssembly, with its weights inside of this file. It needs nothing else: no network, no files.
//
//     import { load } from "./NAME.js";
//     const model = await load();
//
// It runs in browsers, in workers, in Node, Deno and Bun. NAME.d.ts has the types, README.md has examples.

/** Reads the weights and compiles the code. With `simd` false, code for processors without vector instructions is
 * taken, which has the same results; else it is taken where nothing else runs. */
export async function load({ simd = true } = {}) {
  const wide = bytesOf(SIMD), isWide = simd && WebAssembly.validate(wide);
  const { instance } = await WebAssembly.instantiate(isWide ? wide : bytesOf(PLAIN));
  const memory = new Memory(instance.exports);
  const weights = bytesOf(WEIGHTS);
  memory.check(memory.functions.open(memory.put(weights), weights.length));
  return new Model(memory, isWide);
}

function bytesOf(base64) {
  const text = atob(base64), found = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) found[k] = text.charCodeAt(k);
  return found;
}

/** The functions of the C file, and the memory in which they work. */
class Memory {
  constructor(functions) {
    this.functions = functions;
    functions._initialize();
    this.forgotten = new FinalizationRegistry(place => functions.release(place));
  }

  /** So many bytes at a place. They are valid until memory is allocated. */
  bytes(place, count) {
    return new Uint8Array(this.functions.memory.buffer, place, count);
  }

  get numbers() {
    return new DataView(this.functions.memory.buffer);
  }

  allocate(size) {
    const place = this.functions.allocate(size);
    if (!place) throw new RangeError("there is not enough memory");
    return place;
  }

  put(bytes) {
    const place = this.allocate(bytes.length);
    this.bytes(place, bytes.length).set(bytes);
    return place;
  }

  /** Throws what a number below 0 says. */
  check(code) {
    if (code >= 0) return code;
    const place = this.functions.message(code), bytes = new Uint8Array(this.functions.memory.buffer);
    throw new Error(new TextDecoder().decode(bytes.slice(place, bytes.indexOf(0, place))));
  }
}
