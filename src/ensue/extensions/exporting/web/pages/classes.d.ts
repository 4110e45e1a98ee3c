/** A classifier of ensue. NAME.js has its weights inside, and needs nothing else. */

/** A text; for a model of pairs, two of them. */
export type Text = string | [string, string];

/** A text with its labels. */
export interface Answer extends Choice {
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
