
const SHARE = 8;  // bytes of a probability

/** A tagger of frames: labels with their probabilities, and segments. */
class Model {
  #memory;
  #series;
  #spans;

  constructor(memory, hasSimd) {
    this.#memory = memory;
    this.#series = new Series(memory);
    const labels = labelsOf(memory), { width, rate, secondsPerFrame } = this.#series;
    this.#spans = new Spans(memory, labels, false);
    Object.assign(this, { labels, width, rate, secondsPerFrame, simd: hasSimd, hasSpans: this.#spans.areNamed });
  }

  /** The labels of each series, as in `ensue predict`. */
  predict(series) {
    const memory = this.#memory, { functions } = memory;
    return this.#series.answers(series, (work, frames, place, counts) => {
      const total = sumOf(counts), shares = memory.allocate(total * (SHARE + 4)), labels = shares + total * SHARE;
      try {
        memory.check(functions.tag(work, frames, place, counts.length, labels, shares));
        const { buffer } = functions.memory, ids = new Uint32Array(buffer, labels, total), all = new Float64Array(buffer, shares, total);
        let at = 0;
        return counts.map(count => {
          const part = [at, at += count];
          return this.#answer(Array.from(ids.subarray(...part), id => this.labels[id]), Array.from(all.subarray(...part)));
        });
      } finally {
        functions.release(shares);
      }
    });
  }

  /** The class of a label without the letter of its scheme; null outside of spans. */
  classOf(label) {
    return this.#spans.classOf(label);
  }

  #answer(labels, probabilities) {
    const segments = this.#spans.of(labels).map(({ label, first, last }) => {
      const probability = sumOf(probabilities.slice(first, last + 1)) / (last + 1 - first);
      return { label, begin: this.#series.timeOf(first), end: this.#series.timeOf(last + 1), probability };
    });
    return { labels, probabilities, segments };
  }

  samples(file) {
    return this.#series.samples(file);
  }

  frames(samples) {
    return this.#series.frames(samples);
  }
}
