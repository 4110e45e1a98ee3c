
/** The labels of a text or a series. */
export interface Choice {
  /** The most probable predicted label; null if there is none. */
  label: string | null;
  /** The probability of that label; without a label, the largest probability. */
  probability: number;
  /** All predicted labels, the most probable first: one, or any number for a multi-label model. */
  labels: string[];
  /** The probability of each label, in the order of `Model.labels`. They sum to 1 unless the model is multi-label. */
  probabilities: number[];
}
