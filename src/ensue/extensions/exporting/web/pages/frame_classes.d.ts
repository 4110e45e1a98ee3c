/** A classifier of series, made by ensue. NAME.js has its weights inside, and needs nothing else. */

/** A series with its labels. */
export interface Answer extends Choice {
  /** How many frames it has. */
  frames: number;
}

export interface Model extends FrameModel {
  /** Whether a series may have several labels, or none. */
  readonly isMultiple: boolean;
  /** The labels of each series. No label is given whose probability is below `atLeast`, from 0 to 1. */
  predict(series: Series[], options?: { atLeast?: number }): Answer[];
}

/** Reads the weights and compiles the code; with `simd` false, that without vector instructions. */
export function load(options?: { simd?: boolean }): Promise<Model>;
