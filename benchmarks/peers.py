"""Other ways to train the same translator on the same batches, for the benchmarks.

Each is of a recipe's shape (depth, widths, heads, ReLU, dropout) and over the tokens of
regard's vocabulary, and does a step as its library or most tutorials do it.
"""

from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regard.recipes.recipe import Recipe
from regard.text.batches import Batch
from regard.text.vocabulary import Vocabulary

RATE, SMOOTHING, CLIP = 1e-4, 0.1, 1.0
BETAS, EPS = (0.9, 0.98), 1e-9
IGNORED = -100


class Peer:
    """A model, its optimizer, what its step minimises, and how it is asked for a translation.

    `encode` takes sources and where they are padding, True = padding, and gives what `predict`
    takes beside targets to give the logits of each next token.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Batch], torch.Tensor],
        optimizer: torch.optim.Optimizer,
        encode: Callable[[torch.Tensor, torch.Tensor], Any],
        predict: Callable[[Any, torch.Tensor], torch.Tensor],
        *,
        narrow: bool,
    ) -> None:
        self.model = model.train()
        self.loss = loss
        self.optimizer = optimizer
        self.encode = encode
        self.predict = predict
        self._narrow = narrow

    def step(self, batch: Batch) -> None:
        """Forward, backward, clipping, update."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self._narrow):
            loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def greedy(
        self, source: torch.Tensor, padding: torch.Tensor, start: int, end: int, longest: int
    ) -> list[list[int]]:
        """The likeliest token after the likeliest token, until the end or for so many."""
        self.model.eval()
        with torch.autocast("cpu", torch.bfloat16, enabled=self._narrow):
            seen = self.encode(source, padding)
            target = torch.full((len(source), 1), start)
            ended = torch.zeros(len(source), dtype=torch.bool)
            for _ in range(longest):
                chosen = self.predict(seen, target)[:, -1].argmax(-1)
                ended |= chosen == end
                if bool(ended.all()):
                    break
                target = torch.cat((target, chosen[:, None]), 1)
        self.model.train()
        rows = [row[1:] for row in target.tolist()]
        return [row[: row.index(end)] if end in row else row for row in rows]


class PlainTransformer(nn.Module):
    """torch's own layers under tied embeddings with the paper's positions."""

    def __init__(self, recipe: Recipe, vocabulary: int, longest: int) -> None:
        super().__init__()
        config = recipe.model
        self.tokens = nn.Embedding(vocabulary, config.d_model)
        nn.init.normal_(self.tokens.weight, std=config.d_model**-0.5)
        self.layers = nn.Transformer(
            config.d_model, config.num_heads, config.encoder_layers, config.decoder_layers,
            config.d_ff, config.dropout, batch_first=True,
            norm_first=config.norm_position == "pre",
        )  # fmt: skip
        self.dropout = nn.Dropout(config.dropout)
        self.scale = config.d_model**0.5
        place = torch.arange(longest)[:, None]
        angle = place * 10_000 ** (-torch.arange(0, config.d_model, 2) / config.d_model)
        table = torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
        self.register_buffer("places", table, persistent=False)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Vectors of ids at their places."""
        x: torch.Tensor = self.tokens(ids) * self.scale + self.places[: ids.shape[1]]  # type: ignore[index]
        return self.dropout(x)  # type: ignore[no-any-return]

    def encode(
        self, source: torch.Tensor, padding: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The memory, and its padding."""
        memory = self.layers.encoder(self.embed(source), src_key_padding_mask=padding)
        return memory, padding

    def predict(
        self, seen: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor
    ) -> torch.Tensor:
        """Logits of each next token."""
        memory, padding = seen
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden = self.layers.decoder(
            self.embed(target),
            memory,
            tgt_mask=mask,
            tgt_is_causal=True,
            memory_key_padding_mask=padding,
        )
        return functional.linear(hidden, self.tokens.weight)


def labels_of(batch: Batch) -> torch.Tensor:
    """The tokens to be predicted, padding marked as a loss of PyTorch wants it."""
    places = torch.arange(batch.target_out_bt.shape[1])
    return batch.target_out_bt.masked_fill(places >= batch.target_lengths_b[:, None], IGNORED)


def source_padding(batch: Batch) -> torch.Tensor:
    """True at the padding of the sources."""
    return torch.arange(batch.source_bs.shape[1]) >= batch.source_lengths_b[:, None]


def plain(recipe: Recipe, vocabulary: Vocabulary, *, narrow: bool) -> Peer:
    """The loop around `torch.nn.Transformer`."""
    model = PlainTransformer(recipe, vocabulary.size, recipe.data.max_tokens + 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS)

    def loss(batch: Batch) -> torch.Tensor:
        seen = model.encode(batch.source_bs, source_padding(batch))
        logits = model.predict(seen, batch.target_in_bt)
        return functional.cross_entropy(
            logits.flatten(0, 1),
            labels_of(batch).flatten(),
            ignore_index=IGNORED,
            label_smoothing=SMOOTHING,
        )

    return Peer(model, loss, optimizer, model.encode, model.predict, narrow=narrow)


def marian(recipe: Recipe, vocabulary: Vocabulary, *, narrow: bool) -> Peer:
    """transformers' Marian model with the step of its Trainer, whose AdamW is the fused one."""
    from transformers import MarianConfig, MarianMTModel  # noqa: PLC0415 - takes seconds
    from transformers.trainer_pt_utils import LabelSmoother  # noqa: PLC0415

    shape = recipe.model
    config = MarianConfig(
        vocab_size=vocabulary.size,
        max_position_embeddings=recipe.data.max_tokens + 2,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.num_heads,
        decoder_attention_heads=shape.num_heads,
        encoder_ffn_dim=shape.d_ff,
        decoder_ffn_dim=shape.d_ff,
        activation_function="relu",
        dropout=shape.dropout,
        scale_embedding=True,
        pad_token_id=vocabulary.pad_id,
        eos_token_id=vocabulary.eos_id,
        forced_eos_token_id=vocabulary.eos_id,
        decoder_start_token_id=vocabulary.start_id,
    )
    model = MarianMTModel(config)
    smoother = LabelSmoother(epsilon=SMOOTHING)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS, fused=True)

    def loss(batch: Batch) -> torch.Tensor:
        output: Any = model(
            input_ids=batch.source_bs,
            attention_mask=(~source_padding(batch)).long(),
            decoder_input_ids=batch.target_in_bt,
            use_cache=False,
        )
        smoothed: torch.Tensor = smoother(output, labels_of(batch))
        return smoothed

    def encode(source: torch.Tensor, padding: torch.Tensor) -> Any:  # noqa: ANN401
        mask = (~padding).long()
        return model.get_encoder()(input_ids=source, attention_mask=mask), mask

    def predict(seen: Any, target: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        memory, mask = seen
        output: Any = model(
            encoder_outputs=memory, attention_mask=mask, decoder_input_ids=target, use_cache=False
        )
        logits: torch.Tensor = output.logits
        return logits

    return Peer(model, loss, optimizer, encode, predict, narrow=narrow)


def has_joeynmt() -> bool:
    """Whether JoeyNMT is installed, and a package of its that its own list forgets."""
    return find_spec("joeynmt") is not None and find_spec("importlib_metadata") is not None


class _JoeyVocabulary(SimpleNamespace):
    """What JoeyNMT asks of a vocabulary while it trains."""

    def __len__(self) -> int:
        return int(self.size)

    def lookup(self, token: str) -> int:
        """Never asked for a token: it is given no special ones."""
        raise KeyError(token)


def joey(recipe: Recipe, vocabulary: Vocabulary, *, narrow: bool) -> Peer:
    """JoeyNMT's model with the step of its TrainManager."""
    from joeynmt.batch import Batch as JoeyBatch  # noqa: PLC0415 - may not be there
    from joeynmt.model import build_model as build_joey  # noqa: PLC0415

    shape = recipe.model
    half = {
        "type": "transformer",
        "num_heads": shape.num_heads,
        "embeddings": {"embedding_dim": shape.d_model, "scale": True, "dropout": shape.dropout},
        "hidden_size": shape.d_model,
        "ff_size": shape.d_ff,
        "dropout": shape.dropout,
        "layer_norm": shape.norm_position,
        "activation": "relu",
    }
    config = {
        "encoder": half | {"num_layers": shape.encoder_layers},
        "decoder": half | {"num_layers": shape.decoder_layers},
        "initializer": "xavier_uniform",
        "bias_initializer": "zeros",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": True,
        "tied_softmax": True,
    }
    words = _JoeyVocabulary(
        size=vocabulary.size,
        pad_index=vocabulary.pad_id,
        bos_index=vocabulary.start_id,
        eos_index=vocabulary.eos_id,
        unk_index=vocabulary.pad_id,
        sep_index=None,
        specials=[],
        lang_tags=[],
    )
    model = build_joey(config, src_vocab=words, trg_vocab=words)
    model.loss_function = ("crossentropy", SMOOTHING)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS)

    def loss(batch: Batch) -> torch.Tensor:
        given = JoeyBatch(
            src=batch.source_bs,
            src_length=batch.source_lengths_b,
            src_prompt_mask=None,
            trg=torch.cat((batch.target_in_bt[:, :1], batch.target_out_bt), 1),
            trg_prompt_mask=None,
            indices=torch.arange(len(batch.pairs_b)),
            device=torch.device("cpu"),
            pad_index=vocabulary.pad_id,
            eos_index=vocabulary.eos_id,
        )
        given.sort_by_src_length()
        total, _, _, right = model(return_type="loss", **vars(given))
        right.item()
        mean: torch.Tensor = total / given.ntokens
        mean.item()
        return mean

    def encode(source: torch.Tensor, padding: torch.Tensor) -> Any:  # noqa: ANN401
        real = (~padding)[:, None]
        memory, *_ = model(
            return_type="encode", src=source, src_length=real.sum((1, 2)), src_mask=real
        )
        return memory, real

    def predict(seen: Any, target: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        memory, real = seen
        logits: torch.Tensor
        logits, *_ = model(
            return_type="decode",
            trg_input=target,
            encoder_output=memory,
            encoder_hidden=None,
            src_mask=real,
            unroll_steps=None,
            decoder_hidden=None,
            trg_mask=torch.ones(1, 1, 1, dtype=torch.bool),
        )
        return logits

    return Peer(model, loss, optimizer, encode, predict, narrow=narrow)


PEERS = {"torch": plain, "transformers": marian, "joeynmt": joey}
