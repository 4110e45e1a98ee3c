/** A classifier trained with ensue. NAME.js includes the weights and has no dependencies. */

/** A text; for a model of pairs, two texts. */
export type Text = string | [string, string];

/** A text with its labels. */
export interface Answer extends Choice {
  /** The number of words that the model reads. Without words the output is meaningless. */
  words: number;
}

export interface Model {
  readonly labels: string[];
  /** Whether the model reads pairs of texts. */
  readonly isPair: boolean;
  /** Whether a text may have any number of labels. */
  readonly isMultiple: boolean;
  /** Whether the code uses SIMD. */
  readonly simd: boolean;
  /** The labels of each text. Labels with a probability below `atLeast`, from 0 to 1, are left out. */
  predict(texts: Text[], options?: { atLeast?: number }): Answer[];
}

/** Reads the weights and compiles the code; with `simd` false, the code without SIMD. */
export function load(options?: { simd?: boolean }): Promise<Model>;
