/** A language model of ensue. NAME.js has its weights inside, and needs nothing else. */

/** A token of a text. */
export interface Token {
  id: number;
  /** As it stands in the vocabulary. */
  text: string;
  /** The same in UTF-8; a byte or a subword may begin or end within a character. It belongs to the model: do not change it. */
  bytes: Uint8Array;
  /** Whether the text is not in the vocabulary, so that `text` stands for it. */
  isUnknown: boolean;
  /** Its surprisal, -log P(token | all tokens before it), in nats. */
  nats: number;
  /** Where it begins and ends in what was read; of what is written, 0. */
  begin: number;
  end: number;
  /** Of what is written: whether a blank stands before it. */
  blank: boolean;
}

/** How the next token is chosen. The order is: repetition penalty, temperature, top-k, top-p, min-p. */
export interface Sampling {
  /** 1 as the model expects, below more cautious, above more varied; 0 takes the most probable token. */
  temperature?: number;
  /** Keep so many of the most probable tokens. */
  topK?: number;
  /** Keep the most probable tokens that reach this probability together, up to 1. */
  topP?: number;
  /** Keep tokens with this share of the largest probability, up to 1. */
  minP?: number;
  /** Above 1: make tokens that occurred before less probable. */
  repetitionPenalty?: number;
}

export interface Writing extends Sampling {
  /** 200 if nothing else is said. */
  maxTokens?: number;
  /** From 0 to 2^63 - 1. The same seed writes the same text as `ensue generate --seed`. */
  seed?: number | bigint;
}

/** What a model has read. */
export interface State {
  /** Reads on, a string or UTF-8 that is cut anywhere: the tokens that are complete. Their places count bytes. */
  feed(text: string | Uint8Array): Token[];
  /** Ends the text: the tokens that were waiting for more. */
  end(): Token[];
  /** Draws the next token, and reads it. If a text was not ended, it is. */
  next(sampling?: Sampling): Token;
  /** Its bytes, from which `Model.restore` goes on, another day and elsewhere. */
  save(): Uint8Array;
  /** Gives its memory back. A state that is forgotten gives it back some time later. */
  close(): void;
}

export interface Model {
  readonly vocabularySize: number;
  /** Of a Transformer, the most tokens of a prompt; otherwise 0. */
  readonly context: number;
  /** Whether the code has vector instructions. */
  readonly simd: boolean;
  /** All tokens of a text; their places are those of the string. */
  score(text: string): Token[];
  /** The same, one by one, so that a page can pause between them. */
  read(text: string): Generator<Token, void>;
  /** The text that goes on from a prompt, in pieces. Without a seed it differs each time. */
  generate(prompt?: string, options?: Writing): Generator<string, void>;
  /** The state before a text. */
  begin(seed?: number | bigint): State;
  /** The state of which `State.save` gave the bytes. Throws for others. */
  restore(bytes: Uint8Array): State;
}

/** Reads the weights and compiles the code; with `simd` false, that without vector instructions. */
export function load(options?: { simd?: boolean }): Promise<Model>;
