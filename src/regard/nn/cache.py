"""What a decoder remembers between steps: its own past, and keys and values of the memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from regard.shapes import Bool, Float, Int, Tensor


class KeysValues(NamedTuple):
    """Keys (width d_k) and values (width d_v) of one attention, split into heads.

    `masked_are_finite` vouches that no masked place holds a NaN or an infinity.
    """

    key_bhke: Float[Tensor, "b h k e"]
    value_bhkw: Float[Tensor, "b h k w"]
    masked_are_finite: bool = False

    def select(self, rows: Int[Tensor, " r"]) -> "KeysValues":
        """The rows named, in that order."""
        return self._replace(
            key_bhke=self.key_bhke.index_select(0, rows),
            value_bhkw=self.value_bhkw.index_select(0, rows),
        )

    def cleaned(self, mask_bk: Bool[Tensor, "b k"] | None) -> "KeysValues":
        """The same, made contiguous, with 0 at the masked places."""
        if mask_bk is None:
            return KeysValues(self.key_bhke.contiguous(), self.value_bhkw.contiguous(), True)
        padding = ~mask_bk[:, None, :, None]
        return KeysValues(
            self.key_bhke.masked_fill(padding, 0.0).contiguous(),
            self.value_bhkw.masked_fill(padding, 0.0).contiguous(),
            True,
        )


class _GrowingTensor:
    """A sequence of vectors per row and head, in a buffer that doubles; time comes first."""

    def __init__(self) -> None:
        self.length = 0
        self._buffer_krhe: Tensor | None = None
        self._spare_krhe: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors so far."""
        buffer = self._buffer_krhe
        return 0 if buffer is None else buffer[: self.length].nbytes

    def append(self, new_rhte: Tensor) -> Tensor:
        """Add the vectors of `t` more places and return all as a view, r h k e."""
        rows, heads, added, width = new_rhte.shape
        end = self.length + added
        buffer = self._buffer_krhe
        if buffer is None or end > len(buffer):
            capacity = max(end, 16 if buffer is None else 2 * len(buffer))
            grown = new_rhte.new_empty(capacity, rows, heads, width)
            if buffer is not None:
                grown[: self.length] = buffer[: self.length]
            self._buffer_krhe = buffer = grown
            self._spare_krhe = None
        buffer[self.length : end] = new_rhte.permute(2, 0, 1, 3)
        self.length = end
        return buffer[:end].permute(1, 2, 0, 3)

    def select(self, rows: Tensor) -> None:
        """Keep the rows named, in that order; what was there becomes the next spare buffer."""
        if self._buffer_krhe is None:
            return
        shape = (len(self._buffer_krhe), len(rows), *self._buffer_krhe.shape[2:])
        target = self._spare_krhe
        if target is None or target.shape != shape:
            target = self._buffer_krhe.new_empty(shape)
        length = self.length
        torch.index_select(self._buffer_krhe[:length], 1, rows, out=target[:length])
        self._buffer_krhe, self._spare_krhe = target, self._buffer_krhe


class PastKeysValues:
    """The keys and values of one self-attention so far."""

    def __init__(self) -> None:
        self._keys = _GrowingTensor()
        self._values = _GrowingTensor()

    def append(self, new: KeysValues) -> KeysValues:
        """Add the keys and values of a chunk and return all of them so far, as views."""
        return KeysValues(self._keys.append(new.key_bhke), self._values.append(new.value_bhkw))

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values so far, room for more not counted."""
        return self._keys.nbytes + self._values.nbytes

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep the rows named, in that order."""
        self._keys.select(rows)
        self._values.select(rows)


class RecurrentState:
    """The state of one layer: tensors with a row for each row, none before the first token."""

    def __init__(self) -> None:
        self.tensors: tuple[Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep the rows named, in that order."""
        self.tensors = tuple(tensor.index_select(0, rows) for tensor in self.tensors)


Past = PastKeysValues | RecurrentState


class Cache:
    """The state of a running decode: one row for each hypothesis, `length` tokens in each.

    Args:
        pasts: what each layer remembers, empty as yet.
        rows: how many rows there are at first.
        device: where they are.
    """

    def __init__(self, pasts: Sequence[Past], rows: int, device: torch.device) -> None:
        self.length = 0
        self.pasts = list(pasts)
        self.past_mask_rk: Tensor | None = None
        self._rows = rows
        self._device = device

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._rows

    def extended_mask(self, mask_rt: Bool[Tensor, "r t"] | None, added: int) -> Tensor | None:
        """Which places hold tokens, the `added` new ones of `mask_rt` included.

        None, here and in what comes back, means that every place holds a token.
        """
        if mask_rt is None and self.past_mask_rk is None:
            return None
        before = self.past_mask_rk
        if before is None:
            before = torch.ones(self.rows, self.length, dtype=torch.bool, device=self._device)
        if mask_rt is None:
            mask_rt = torch.ones(self.rows, added, dtype=torch.bool, device=self._device)
        return torch.cat([before, mask_rt], dim=1)

    def advance(self, added: int, mask_rk: Bool[Tensor, "r k"] | None) -> None:
        """Count the `added` places in; `mask_rk` is their `extended_mask`."""
        self.length += added
        self.past_mask_rk = mask_rk

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Make the rows named, in that order, the rows: reorder, repeat or leave out."""
        unmoved = len(rows) == self.rows and torch.equal(
            rows, torch.arange(len(rows), device=rows.device)
        )
        if unmoved:
            return
        for past in self.pasts:
            past.select(rows)
        if self.past_mask_rk is not None:
            self.past_mask_rk = self.past_mask_rk.index_select(0, rows)
        self._rows = len(rows)
        self._selected(rows)

    def _selected(self, rows: Int[Tensor, " r"]) -> None:
        """Do what else the new rows ask for."""


@dataclass
class LayerCache:
    """What one decoder layer remembers: its own past, and the memory's keys and values."""

    past: Past
    memory: KeysValues


class DecoderCache(Cache):
    """The cache of an encoder-decoder.

    The memory's keys and values are kept once a sentence. While the rows are the sentences in
    order, each the same number of times (`group`), as in a beam search, all rows of a sentence
    share them and nothing is copied; for other choices of rows they are copied once for each
    row, until the sentences of the rows change again.

    Args:
        pasts: what each layer remembers, empty as yet.
        memories: keys and values of the memory for each layer, masked places set to 0.
        memory_mask_bs: where the memory holds tokens; None = everywhere.
    """

    def __init__(
        self,
        pasts: Sequence[Past],
        memories: Sequence[KeysValues],
        memory_mask_bs: Bool[Tensor, "b s"] | None,
    ) -> None:
        sentences, device = len(memories[0].key_bhke), memories[0].key_bhke.device
        super().__init__(pasts, sentences, device)
        self.layers = [
            LayerCache(past, memory) for past, memory in zip(pasts, memories, strict=True)
        ]
        self.group = 1
        self.memory_mask_bs = memory_mask_bs
        self._base = list(memories)
        self._base_mask_bs = memory_mask_bs
        self._sentence_r = torch.arange(sentences, device=device)

    def _selected(self, rows: Int[Tensor, " r"]) -> None:
        sentence_r = self._sentence_r.index_select(0, rows)
        if not torch.equal(sentence_r, self._sentence_r):
            self._sentence_r = sentence_r
            self._share_memories()

    def _share_memories(self) -> None:
        """Fit the memory's keys and values to the sentences that the rows now belong to."""
        kept, sentence_r, counts = torch.unique(
            self._sentence_r, sorted=True, return_inverse=True, return_counts=True
        )
        if len(kept) < len(self._base[0].key_bhke):
            self._base = [memory.select(kept) for memory in self._base]
            if self._base_mask_bs is not None:
                self._base_mask_bs = self._base_mask_bs.index_select(0, kept)
            self._sentence_r = sentence_r
        group = int(counts[0]) if len(kept) else 1
        in_order = torch.arange(len(kept), device=sentence_r.device).repeat_interleave(group)
        if torch.equal(in_order, sentence_r):
            self.group, memories, self.memory_mask_bs = group, self._base, self._base_mask_bs
        else:
            self.group, memories = 1, [memory.select(sentence_r) for memory in self._base]
            if self._base_mask_bs is not None:
                self.memory_mask_bs = self._base_mask_bs.index_select(0, sentence_r)
        for layer, memory in zip(self.layers, memories, strict=True):
            layer.memory = memory
