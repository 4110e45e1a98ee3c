/** A tagger of frames, made by ensue. NAME.js has its weights inside, and needs nothing else. */

/** Neighbors with the same label, or a span of labels such as B-walk and I-walk. */
export interface Segment {
  /** The label; of spans their class, such as walk. */
  label: string;
  /** Where it begins, and where the next frame begins: in seconds of a sound, else the number of the frame, from 0. */
  begin: number;
  end: number;
  /** The mean of the probabilities of its labels. */
  probability: number;
}

/** A series with its labels. */
export interface Answer {
  /** The label of each frame. */
  labels: string[];
  /** How probable each label is. */
  probabilities: number[];
  /** The segments, in their order. Frames outside of spans are in none. */
  segments: Segment[];
}

export interface Model extends FrameModel {
  /** Whether labels are of spans, in a scheme such as IOB. */
  readonly hasSpans: boolean;
  /** The labels of each series. */
  predict(series: Series[]): Answer[];
  /** The class of a label, such as walk of B-walk; null outside of spans. */
  classOf(label: string): string | null;
}

/** Reads the weights and compiles the code; with `simd` false, that without vector instructions. */
export function load(options?: { simd?: boolean }): Promise<Model>;
