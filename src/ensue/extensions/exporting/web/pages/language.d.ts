/** A language model trained with ensue. NAME.js includes the weights and has no dependencies. */

/** A token of a text. */
export interface Token {
  id: number;
  /** The text of the token in the vocabulary. */
  text: string;
  /** The text in UTF-8; bytes and subwords may split a character. The array belongs to the model and must not be
   * changed. */
  bytes: Uint8Array;
  /** Whether the text is not in the vocabulary; `text` is a placeholder. */
  isUnknown: boolean;
  /** The surprisal -log P(token | all previous tokens), in nats. */
  nats: number;
  /** The begin and the end of the token in the text; 0 for generated tokens. */
  begin: number;
  end: number;
  /** Whether a blank comes before this generated token. */
  blank: boolean;
}

/** Options of sampling. The order is: repetition penalty, temperature, top-k, top-p, min-p. */
export interface Sampling {
  /** 1: unchanged; lower values are more conservative, higher ones more random; 0 is greedy. */
  temperature?: number;
  /** Keep this number of the most probable tokens. */
  topK?: number;
  /** Keep the most probable tokens up to this cumulative probability, at most 1. */
  topP?: number;
  /** Keep tokens with this fraction of the largest probability, at most 1. */
  minP?: number;
  /** Values above 1 make repeated tokens less probable. */
  repetitionPenalty?: number;
}

/** Options of generation. */
export interface Writing extends Sampling {
  /** The number of tokens to generate, by default 200. */
  maxTokens?: number;
  /** The seed of the random numbers, from 0 to 2^63 - 1. A seed gives the same text as `ensue generate --seed`. */
  seed?: number | bigint;
}

/** The state of a text. */
export interface State {
  /** Reads a string, or UTF-8 bytes that may be cut anywhere; returns the complete tokens, with offsets in bytes. */
  feed(text: string | Uint8Array): Token[];
  /** Ends the text; returns the tokens that were incomplete. */
  end(): Token[];
  /** Samples the next token and reads it; ends the text first. */
  next(sampling?: Sampling): Token;
  /** Returns the bytes of the state, for `Model.restore` in any process. */
  save(): Uint8Array;
  /** Frees the memory. The memory of an unreachable state is freed by garbage collection. */
  close(): void;
}

export interface Model {
  readonly vocabularySize: number;
  /** The maximum length of a prompt of a Transformer; 0 for other models. */
  readonly context: number;
  /** Whether the code uses SIMD. */
  readonly simd: boolean;
  /** Returns all tokens of a text, with offsets in the string. */
  score(text: string): Token[];
  /** Yields the tokens of `score` one by one, so that a page can respond between them. */
  read(text: string): Generator<Token, void>;
  /** Yields the continuation of a prompt. The default seed is random. */
  generate(prompt?: string, options?: Writing): Generator<string, void>;
  /** Returns the initial state. */
  begin(seed?: number | bigint): State;
  /** Returns the state with the bytes of `State.save`. Throws for other bytes. */
  restore(bytes: Uint8Array): State;
}

/** Reads the weights and compiles the code; with `simd` false, the code without SIMD. */
export function load(options?: { simd?: boolean }): Promise<Model>;
