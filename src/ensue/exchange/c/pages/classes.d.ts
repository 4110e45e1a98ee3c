/** A classifier of ensue. NAME.js has its weights inside, and needs nothing else. */

/** A text; for a model of pairs, two of them. */
export type Text = string | [string, string];

/** A text with its labels. */
export interface Answer {
  /** The most probable of its labels; null if it has none. */
  label: string | null;
  /** How probable that label is; without a label, the probability of the most probable one. */
  probability: number;
  /** All labels that are given, the most probable first: one, or any number if the model gives several. */
  labels: string[];
  /** The probability of every label, in the order of `Model.labels`. If a text has one label, they sum to 1. */
  probabilities: number[];
  /** How many words were read. If there are none, the answer means nothing. */
  words: number;
}

export interface Model {
  readonly labels: string[];
  /** Whether the model reads pairs of texts. */
  readonly isPair: boolean;
  /** Whether a text may have several labels, or none. */
  readonly isMultiple: boolean;
  /** Whether the code has vector instructions. */
  readonly simd: boolean;
  /** The labels of each text. No label is given whose probability is below `atLeast`, from 0 to 1. */
  predict(texts: Text[], options?: { atLeast?: number }): Answer[];
}

/** Reads the weights and compiles the code; with `simd` false, that without vector instructions. */
export function load(options?: { simd?: boolean }): Promise<Model>;
