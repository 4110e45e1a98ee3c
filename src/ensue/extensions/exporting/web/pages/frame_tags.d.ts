/** A tagger of frames trained with ensue. NAME.js includes the weights and has no dependencies. */

/** A run of equal labels, or a span of labels such as B-walk and I-walk. */
export interface Segment {
  /** The label, or the class of a span, such as walk. */
  label: string;
  /** The begin and the end (exclusive) of the segment: seconds of a sound, otherwise frame numbers from 0 on. */
  begin: number;
  end: number;
  /** The mean probability of the labels of the segment. */
  probability: number;
}

/** A series with its labels. */
export interface Answer {
  /** The label of each frame. */
  labels: string[];
  /** The probability of each label. */
  probabilities: number[];
  /** The segments in order, without frames outside of spans. */
  segments: Segment[];
}

export interface Model extends FrameModel {
  /** Whether the labels form spans, in a scheme such as IOB. */
  readonly hasSpans: boolean;
  /** The labels of each series. */
  predict(series: Series[]): Answer[];
  /** The class of a label, such as walk of B-walk; null outside of spans. */
  classOf(label: string): string | null;
}

/** Reads the weights and compiles the code; with `simd` false, the code without SIMD. */
export function load(options?: { simd?: boolean }): Promise<Model>;
