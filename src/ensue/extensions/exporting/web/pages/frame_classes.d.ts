/** A classifier of series trained with ensue. NAME.js includes the weights and has no dependencies. */

/** A series with its labels. */
export interface Answer extends Choice {
  /** The number of frames. */
  frames: number;
}

export interface Model extends FrameModel {
  /** Whether a series may have any number of labels. */
  readonly isMultiple: boolean;
  /** The labels of each series. Labels with a probability below `atLeast`, from 0 to 1, are left out. */
  predict(series: Series[], options?: { atLeast?: number }): Answer[];
}

/** Reads the weights and compiles the code; with `simd` false, the code without SIMD. */
export function load(options?: { simd?: boolean }): Promise<Model>;
