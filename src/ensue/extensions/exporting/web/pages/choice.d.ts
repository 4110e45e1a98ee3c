
/** The labels of a text or a series. */
export interface Choice {
  /** The most probable predicted label; null without a predicted label. */
  label: string | null;
  /** The probability of `label`; if `label` is null, the largest probability. */
  probability: number;
  /** All predicted labels, the most probable first: one, or any number for a multi-label model. */
  labels: string[];
  /** The probabilities of all labels, in the order of `Model.labels`; the sum is 1 unless the model is multi-label. */
  probabilities: number[];
}
