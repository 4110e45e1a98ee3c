/** A tagger of ensue. NAME.js has its weights inside, and needs nothing else. */

/** A word of a sentence. */
export interface Word {
  text: string;
  label: string;
  /** How probable the label is. */
  probability: number;
  /** Where it begins and ends in the text; null of words that were given. */
  begin: number | null;
  end: number | null;
}

/** Words that belong together. */
export interface Span {
  /** Their class, such as PER of B-PER. */
  label: string;
  /** The places of its first and last word in the sentence. */
  first: number;
  last: number;
  /** That of its least probable label. */
  probability: number;
}

export interface Model {
  readonly labels: string[];
  /** Whether labels are of spans, in a scheme such as IOB. */
  readonly hasSpans: boolean;
  /** Whether the code has vector instructions. */
  readonly simd: boolean;
  /** The words of each sentence. A string is cut into words; an array has the words. */
  predict(texts: (string | string[])[]): Word[][];
  /** The spans of a sentence; if labels are of no spans, each of its words. */
  spans(words: Word[]): Span[];
  /** The class of a label, such as PER of B-PER; null outside of spans. */
  classOf(label: string): string | null;
}

/** Reads the weights and compiles the code; with `simd` false, that without vector instructions. */
export function load(options?: { simd?: boolean }): Promise<Model>;
