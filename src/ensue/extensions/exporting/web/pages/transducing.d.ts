/** An encoder-decoder trained with ensue. NAME.js includes the weights and has no dependencies. */

/** A text; for a model of several texts (`Model.numTexts`), an array of texts. */
export type Source = string | string[];

/** Options of beam search. */
export interface Search {
  /** The beam size, from 1 (greedy) to 32. */
  beams?: number;
  /** The number of outputs of a source, 1 to `beams`. */
  nBest?: number;
  /** A number A from 0 to 10: outputs are ranked by ln P / length^A, where the length includes the end token. */
  lengthPenalty?: number;
  /** The minimum and the maximum of tokens of an output. */
  minTokens?: number;
  maxTokens?: number;
  /** No n-gram of this length is repeated; 0: no restriction. */
  noRepeatNgram?: number;
}

/** An output. */
export interface Text {
  text: string;
  /** The probability of the whole text. */
  probability: number;
  /** The logarithm of `probability`, in nats. */
  logProbability: number;
  /** The score by which outputs are ranked. */
  score: number;
  /** False if the output was truncated, or if no token was allowed. */
  isComplete: boolean;
}

/** The best output for a source, with the other outputs sorted by score. */
export interface Answer extends Text {
  others: Text[];
}

export interface Model {
  /** The number of texts per source. */
  readonly numTexts: number;
  /** The search options of the run. */
  readonly search: Required<Search>;
  /** Whether the code uses SIMD. */
  readonly simd: boolean;
  /** The output for each source. The defaults of the options are those of the run. */
  predict(sources: Source[], search?: Search): Answer[];
  /** Yields the outputs of `predict` one by one, for programs that show outputs as they are computed. */
  answers(sources: Source[], search?: Search): IterableIterator<Answer>;
}

/** Reads the weights and compiles the code; with `simd` false, the code without SIMD. */
export function load(options?: { simd?: boolean }): Promise<Model>;
