
/** A classifier of series: their labels, with the probabilities of all labels. */
class Model {
  #memory;
  #series;

  constructor(memory, hasSimd) {
    this.#memory = memory;
    this.#series = new Series(memory);
    const { width, rate, secondsPerFrame } = this.#series;
    Object.assign(this, { labels: labelsOf(memory), width, rate, secondsPerFrame, simd: hasSimd, isMultiple: memory.functions.is_multiple() === 1 });
  }

  /** The labels of each series, as in `ensue predict`. Labels with a probability below `atLeast` are left out. */
  predict(series, options) {
    const memory = this.#memory, { functions } = memory, atLeast = checkedAtLeast(options);
    return this.#series.answers(series, (work, frames, place, counts) => {
      const output = memory.allocate(outputSize(2 * counts.length, this.labels));
      try {
        memory.check(functions.classify(work, frames, place, counts.length, atLeast, output));
        return choicesAt(memory, output, counts.length, this.labels, "frames");
      } finally {
        functions.release(output);
      }
    });
  }

  samples(file) {
    return this.#series.samples(file);
  }

  frames(samples) {
    return this.#series.frames(samples);
  }
}
