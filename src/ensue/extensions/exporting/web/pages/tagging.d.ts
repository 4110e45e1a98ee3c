/** A tagger trained with ensue. NAME.js includes the weights and has no dependencies. */

/** A word of a sentence. */
export interface Word {
  text: string;
  label: string;
  /** The probability of the label. */
  probability: number;
  /** The begin and the end of the word in the text; null if the sentence was an array of words. */
  begin: number | null;
  end: number | null;
}

/** A span of words. */
export interface Span {
  /** The class of the span, such as PER of B-PER. */
  label: string;
  /** The indices of the first and the last word of the span in the sentence. */
  first: number;
  last: number;
  /** The smallest probability of the labels of the span. */
  probability: number;
}

export interface Model {
  readonly labels: string[];
  /** Whether the labels form spans, in a scheme such as IOB. */
  readonly hasSpans: boolean;
  /** Whether the code uses SIMD. */
  readonly simd: boolean;
  /** The words of each sentence. A string is split into words; an array already has words. */
  predict(texts: (string | string[])[]): Word[][];
  /** The spans of a sentence; for labels without spans, each word. */
  spans(words: Word[]): Span[];
  /** The class of a label, such as PER of B-PER; null outside of spans. */
  classOf(label: string): string | null;
}

/** Reads the weights and compiles the code; with `simd` false, the code without SIMD. */
export function load(options?: { simd?: boolean }): Promise<Model>;
