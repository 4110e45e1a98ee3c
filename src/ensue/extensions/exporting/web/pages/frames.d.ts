
/** An array or typed array of numbers. NaN is a missing value. */
export type Numbers = number[] | Float32Array | Float64Array;

/** A series: rows of numbers, or all numbers concatenated. For a model of sounds, samples from -1 to 1 at
 * `Model.rate`, the bytes of a WAV file, or rows of features. */
export type Series = Numbers[] | Numbers | Uint8Array | ArrayBuffer;

/** The members of models of frames. */
export interface FrameModel {
  readonly labels: string[];
  /** The numbers per frame. */
  readonly width: number;
  /** The sampling rate in Hz; null if the model does not read sounds. */
  readonly rate: number | null;
  /** The step between frames in seconds; null if the model does not read sounds. */
  readonly secondsPerFrame: number | null;
  /** Whether the code uses SIMD. */
  readonly simd: boolean;
  /** The samples of a PCM WAV file of 8 to 32 bits at `rate`, averaged over channels. */
  samples(file: Uint8Array | ArrayBuffer): Float32Array;
  /** The features of a sound: `width` numbers per frame, concatenated. */
  frames(samples: Numbers): Float32Array;
}
