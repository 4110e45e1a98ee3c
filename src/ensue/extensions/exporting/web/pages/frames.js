
const SERIES = 8, REAL = 4, MAX_FRAMES_PER_CALL = 1 << 12, MAX_SERIES_PER_CALL = 256;  // bytes of a NAME_series and of a number; frames and series per call

/** Series of frames in the memory of WebAssembly, and the features of sounds. */
class Series {
  #memory;

  constructor(memory) {
    const { functions } = this.#memory = memory;
    this.width = functions.width();
    this.rate = functions.rate?.() ?? null;
    this.step = functions.frame_step?.() ?? null;
    this.secondsPerFrame = this.rate && this.step / this.rate;
  }

  /** The time of a frame: in seconds for sounds, otherwise its number. */
  timeOf(frames) {
    return this.rate ? frames * this.step / this.rate : frames;
  }

  /** Returns the outputs of all series. `answer` computes the outputs of a batch from the address and the size in frames
   * of the memory of the call, the address of an array of NAME_series, and the number of frames of each series. */
  answers(list, answer) {
    if (!Array.isArray(list)) throw new TypeError("the series are not an array");
    const found = [], work = { place: 0, room: 0 }, { functions } = this.#memory;
    try {
      for (let k = 0; k < list.length;) {
        const batch = [];
        try {
          for (let frames = 0; k < list.length && batch.length < MAX_SERIES_PER_CALL && frames < MAX_FRAMES_PER_CALL; frames += batch.at(-1).count)
            batch.push(this.#put(list[k++]));
          for (const one of this.#answerBatch(batch, work, answer)) found.push(one);
        } finally {
          for (const { place } of batch) functions.release(place);
        }
      }
      return found;
    } finally {
      functions.release(work.place);
    }
  }

  #answerBatch(batch, work, answer) {
    const memory = this.#memory, counts = batch.map(({ count }) => count);
    const frames = Math.max(Math.min(sumOf(counts), MAX_FRAMES_PER_CALL), ...counts);
    memory.enlarge(work, this.#workSize(frames));
    const place = memory.allocate(batch.length * SERIES);
    try {
      const { numbers } = memory;
      batch.forEach((one, k) => {
        numbers.setUint32(place + k * SERIES, one.place, true);
        numbers.setUint32(place + k * SERIES + 4, one.count, true);
      });
      return answer(work.place, frames, place, counts);
    } finally {
      memory.functions.release(place);
    }
  }

  /** Puts the frames of a series into memory; returns their address and number. */
  #put(one) {
    const isRows = Array.isArray(one) && typeof one[0] === "object";
    const numbers = isRows ? flattenRows(one, this.width) : isBytes(one) ? this.samples(one) : flatten(one);
    const frames = this.rate && !isRows ? this.frames(numbers) : numbers, count = frames.length / this.width;
    if (!count) throw new RangeError("a series has no frames");
    if (count % 1) throw new RangeError(`${frames.length} numbers do not form frames of ${this.width}`);
    this.#workSize(count);
    return { place: this.#putNumbers(frames), count };
  }

  #putNumbers(numbers) {
    const place = this.#memory.allocate(numbers.length * REAL);
    this.#memory.reals(place, numbers.length).set(numbers);
    return place;
  }

  #workSize(frames) {
    const size = this.#memory.functions.work_size(frames) >>> 0;
    if (!size) throw new RangeError("a series is too long");
    return size;
  }

  /** The samples of a WAV file, from -1 to 1, averaged over channels. */
  samples(file) {
    if (!this.rate) throw new TypeError("the model does not read sounds; found the bytes of a file");
    if (!isBytes(file)) throw new TypeError("a file is neither a Uint8Array nor an ArrayBuffer");
    const memory = this.#memory, { functions } = memory, size = file.byteLength, place = memory.put(new Uint8Array(file.buffer ?? file, file.byteOffset, size));
    try {
      const count = memory.check(functions.samples(place, size, 0, 0));
      return this.#collect(count, to => functions.samples(place, size, to, count));
    } finally {
      functions.release(place);
    }
  }

  /** The features of each frame of a sound, concatenated. */
  frames(samples) {
    if (!this.rate) throw new TypeError("the model does not read sounds");
    const numbers = flatten(samples), memory = this.#memory, { functions } = memory;
    if (!numbers.length) throw new RangeError("a sound has no samples");
    const work = memory.allocate(this.#workSize(1));
    let place = 0;
    try {
      place = this.#putNumbers(numbers);
      const count = memory.check(functions.frames(work, place, numbers.length, 0, 0));
      return this.#collect(count * this.width, to => functions.frames(work, place, numbers.length, to, count));
    } finally {
      functions.release(place);
      functions.release(work);
    }
  }

  /** Returns the numbers that a function writes to an address. */
  #collect(count, write) {
    const memory = this.#memory, to = memory.allocate(count * REAL);
    try {
      write(to);
      return memory.reals(to, count).slice();
    } finally {
      memory.functions.release(to);
    }
  }
}

function isBytes(value) {
  return value instanceof Uint8Array || value instanceof ArrayBuffer;
}

/** Concatenates numbers. */
function flatten(values) {
  if (values instanceof Float32Array) return values;
  if (!Array.isArray(values) && !(values instanceof Float64Array)) throw new TypeError("a series is neither numbers nor rows of numbers");
  if (!values.every(x => typeof x === "number")) throw new TypeError("a series has a value that is not a number");
  return Float32Array.from(values);
}

/** Concatenates the numbers of frames. */
function flattenRows(frames, width) {
  const found = new Float32Array(frames.length * width);
  frames.forEach((frame, t) => {
    const row = flatten(frame);
    if (row.length !== width) throw new RangeError(`expected frames of ${width} numbers, found ${row.length}`);
    found.set(row, t * width);
  });
  return found;
}
