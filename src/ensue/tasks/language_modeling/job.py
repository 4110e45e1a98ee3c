"""The training of language models: task and job."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ensue.data.corpus.batches import Blocks, Segments
from ensue.data.mapped_file import TokenFile
from ensue.decode.generation import generate_ids
from ensue.decode.sampling import Sampling
from ensue.metrics.scores import LanguageScores
from ensue.models.language_model import LanguageModel
from ensue.models.specification import TransformerEncoder
from ensue.nn import WordSample
from ensue.nn.draws import RowSlice
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.tasks.contract.task import Batch, LazyBatch, Task, on_device, reset
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.tasks.texts.corpus import Corpus, CorpusJob, SampledWords, notes_on_sampling, sampled_words
from ensue.tasks.texts.scoring import default_parts, describe_protocol, score_text
from ensue.text.tokenizers import Tokenizer
from ensue.types import Loss, State


@dataclass(frozen=True)
class LanguageBatch(Batch):
    """A batch of segments or blocks of a text."""

    shared: ClassVar[frozenset[str]] = frozenset({"sample"})
    inputs: torch.Tensor
    """Ids (B, T)."""
    targets: torch.Tensor
    """The ids (B, T) after each input."""
    sample: WordSample | None = None
    """The words of a sampled softmax."""

    @property
    def count(self) -> int:
        return self.targets.numel()


class LanguageModeling(Task[LanguageModel, LanguageBatch]):
    """Training on segments with carried state, or on shuffled blocks. Validation measures nats per token."""

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self, batches: Segments | Blocks, *, tokenizer: Tokenizer, valid: TokenFile | None, segment_length: int,
        sample_tokens: int = 0, reset_state: float = 0.0, sampled: SampledWords | None = None,
    ) -> None:  # fmt: skip
        self.sampled = sampled
        self.batches, self.tokenizer, self.valid, self.sample_tokens = batches, tokenizer, valid, sample_tokens
        self.reset_state = reset_state
        self.carries_state = isinstance(batches, Segments)
        self.steps_per_epoch = batches.steps_per_epoch
        self.tokens_per_step = batches.batch_size * segment_length

    def batch(self, step: int, device: torch.device) -> LanguageBatch:
        return self.lazy_batch(step, device).all_rows

    def lazy_batch(self, step: int, device: torch.device) -> LazyBatch[LanguageBatch]:
        rows, first = np.arange(self.batches.batch_size), self.batches.is_first(step)
        sample = None if self.sampled is None else self.sampled.draw(step, device)

        def read(row_slice: RowSlice) -> LanguageBatch:
            batch = self.batches.batch(step, row_slice.select(rows))
            inputs, targets = on_device(batch.inputs, device), on_device(batch.targets, device)
            return LanguageBatch(inputs, targets, sample, first=first)

        return LazyBatch(len(rows), len(rows) * self.batches.segment_length, read, first=first)

    def initial_state(self, model: LanguageModel) -> State:
        return model.init_state(self.batches.batch_size)

    def carry_state(self, model: LanguageModel, batch: LazyBatch[LanguageBatch], state: State) -> State:
        """Return None at the beginning of a pass over the text, else the last state with rows reset at random."""
        return None if batch.first else reset(state, self.reset_state, model.init_state)

    def loss(self, model: LanguageModel, batch: LanguageBatch, state: State) -> tuple[Loss, State]:
        loss, after = model.loss(batch.inputs, batch.targets, state, sample=batch.sample)
        return loss, after if self.carries_state else None

    def score(self, model: LanguageModel, data: TokenFile) -> LanguageScores:
        return score_text(model, data, start_id=self.tokenizer.start_id)

    def sample(self, model: LanguageModel, seed: int) -> str:
        columns = generate_ids(
            model, [np.zeros(0, dtype=np.int64)], max_tokens=self.sample_tokens, sampling=Sampling(), seed=seed,
            start_id=self.tokenizer.start_id,
        )  # fmt: skip
        return self.tokenizer.decode([int(column[0]) for column in columns])


class LanguageModelingJob(CorpusJob[LanguageModel]):
    """The training of a language model."""

    unit: ClassVar[str] = "tokens"
    recipe: LanguageModelingRecipe
    task: LanguageModeling

    def __init__(self, recipe: LanguageModelingRecipe, run: RunDirectory | None = None) -> None:
        self.read_corpus(recipe, run)
        self.task = make_task(recipe, self.corpus, sampled_words(recipe.head, self.counts, recipe.train.seed))

    @property
    def notes(self) -> list[str]:
        rows, batch_size = self.task.batches.batch_size, self.recipe.train.batch_size
        small = [f"the text fills {rows} rows of a batch, not {batch_size}"] if rows < batch_size else []
        sampling = notes_on_sampling(self.recipe.head, self.parts.vocabulary_size)
        return [*small, *sampling, *self.notes_on_origin(), *self.notes_on_validation()]

    def protocol(self, model: LanguageModel) -> str:
        tokens = len(self.corpus.valid) if self.corpus.valid else 0
        return f"validation: {describe_protocol(model, default_parts(tokens))}" if tokens else ""

    def about(self) -> str:
        kind = self.recipe.tokenizer.kind
        return f"over {self.corpus.tokenizer.vocabulary_size:,} {'subwords' if kind == 'bpe' else kind}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores, LanguageScores.on_card, "text")


def make_task(recipe: LanguageModelingRecipe, corpus: Corpus, sampled: SampledWords | None = None) -> LanguageModeling:
    """Return the task: with shuffled blocks of the context for a Transformer, else with segments and carried state."""
    train, length = recipe.train, recipe.train.segment_length
    batches: type[Segments | Blocks] = Segments
    if isinstance(recipe.encoder, TransformerEncoder):
        length, batches = recipe.encoder.context, Blocks
    return LanguageModeling(
        batches(corpus.train, batch_size=train.batch_size, segment_length=length, seed=train.seed),
        tokenizer=corpus.tokenizer, valid=corpus.valid, segment_length=length, sample_tokens=train.sample_tokens,
        reset_state=train.reset_state, sampled=sampled,
    )  # fmt: skip
