
/** Numbers: an array, or one with a type. NaN is a missing value. */
export type Numbers = number[] | Float32Array | Float64Array;

/** A series: frames, each a row of numbers, or all numbers one behind the other. Of a model that reads sounds, samples
 * from -1 to 1 at `Model.rate`, the bytes of a WAV file, or rows of features. */
export type Series = Numbers[] | Numbers | Uint8Array | ArrayBuffer;

/** What models of frames have. */
export interface FrameModel {
  readonly labels: string[];
  /** The numbers of a frame. */
  readonly width: number;
  /** The samples in a second of a sound; null if the model reads no sounds. */
  readonly rate: number | null;
  /** The seconds from a frame of a sound to the next; null if the model reads no sounds. */
  readonly secondsPerFrame: number | null;
  /** Whether the code has vector instructions. */
  readonly simd: boolean;
  /** The samples of a WAV file with whole numbers of 8 to 32 bits at `rate`; several channels are mixed. */
  samples(file: Uint8Array | ArrayBuffer): Float32Array;
  /** The features of a sound: `width` numbers for each frame, one frame behind the other. */
  frames(samples: Numbers): Float32Array;
}
