
/** The labels of a text or a series. */
export interface Choice {
  /** The most probable of its labels; null if it has none. */
  label: string | null;
  /** How probable that label is; without a label, the probability of the most probable one. */
  probability: number;
  /** All labels that are given, the most probable first: one, or any number if the model gives several. */
  labels: string[];
  /** The probability of every label, in the order of `Model.labels`. If one label is given, they sum to 1. */
  probabilities: number[];
}
