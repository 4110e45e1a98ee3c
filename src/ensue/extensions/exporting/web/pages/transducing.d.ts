/** An encoder–decoder of ensue. NAME.js has its weights inside, and needs nothing else. */

/** A text; for a model that reads several texts together (`Model.numTexts`), an array of them. */
export type Source = string | string[];

/** How to search. */
export interface Search {
  /** Hypotheses that go on after each token, 1 to 32; 1: greedy. */
  beams?: number;
  /** The answers of a source, 1 to `beams`. */
  nBest?: number;
  /** Answers are ranked by ln P / length^lengthPenalty, with the end in their length; 0 to 10. */
  lengthPenalty?: number;
  /** The least and the most tokens of an answer. */
  minTokens?: number;
  maxTokens?: number;
  /** No sequence of so many tokens comes twice; 0: any may. */
  noRepeatNgram?: number;
}

/** A text that the model writes. */
export interface Text {
  text: string;
  /** The probability of the whole text. */
  probability: number;
  /** Its logarithm, in nats. */
  logProbability: number;
  /** What texts are ranked by. */
  score: number;
  /** False if the text was cut at the most tokens, or if nothing could follow. */
  isComplete: boolean;
}

/** The best text for a source, with the next best ones, the best first. */
export interface Answer extends Text {
  others: Text[];
}

export interface Model {
  /** How many texts are read together. */
  readonly numTexts: number;
  /** The search of the run. */
  readonly search: Required<Search>;
  /** Whether the code has vector instructions. */
  readonly simd: boolean;
  /** The answer to each source; what `search` does not say is as in the run. */
  predict(sources: Source[], search?: Search): Answer[];
  /** The answers one by one, for programs that show them as they come. */
  answers(sources: Source[], search?: Search): IterableIterator<Answer>;
}

/** Reads the weights and compiles the code; with `simd` false, that without vector instructions. */
export function load(options?: { simd?: boolean }): Promise<Model>;
