"""The tables of translation programs of one build, which differ in their names alone."""

from dataclasses import dataclass

from regard.models.config import TransformerConfig
from regard.weights.foreign.parts import attention_sizes
from regard.weights.foreign.table import Row, kinds, same, stacked


@dataclass(frozen=True)
class Attention:
    """What an attention and the norm before it are called, and what it is here."""

    name: str
    norm: str
    ours: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program's names.

    `embeddings` are those of source and target, `stacks` what the names of the layers of encoder
    and decoder begin with, `attentions` what is in a layer of each, `inputs` an attention's
    queries, keys and values, and `feed_forward` its two matrices.
    """

    embeddings: tuple[str, str]
    projection: str
    stacks: tuple[str, str]
    attentions: tuple[tuple[Attention, ...], tuple[Attention, ...]]
    inputs: tuple[str, str, str]
    output: str
    feed_forward: tuple[str, str]

    def table(self, config: TransformerConfig) -> list[Row]:
        """Its names and ours."""
        source, target = self.embeddings
        rows = same(source, "source_embedding", kinds(False))
        if config.tying != "three_way":
            rows += same(target, "target_embedding", kinds(False))
        if config.tying == "none":
            rows += same(self.projection, "projection", kinds(False))
        if config.output_bias:
            rows.append(Row((f"{self.projection}.bias",), "output_bias"))
        depths = (config.encoder_layers, config.decoder_layers)
        for side, stack, attentions, depth in zip(
            ("encoder", "decoder"), self.stacks, self.attentions, depths, strict=True
        ):
            for i in range(depth):
                rows += self._layer(config, f"{stack}.{i}", f"{side}_layers.{i}", attentions)
            if config.norm_position == "pre":
                rows += same(f"{side}.layer_norm", f"{side}_norm")
        return rows

    def _layer(
        self, config: TransformerConfig, theirs: str, ours: str, attentions: tuple[Attention, ...]
    ) -> list[Row]:
        rows: list[Row] = []
        for attention in attentions:
            name, here = f"{theirs}.{attention.name}", f"{ours}.{attention.ours}"
            inputs = [f"{name}.{part}" for part in self.inputs]
            rows += stacked(inputs, f"{here}.input", attention_sizes(config))
            rows += same(f"{name}.{self.output}", f"{here}.output")
            rows += same(f"{theirs}.{attention.norm}", f"{here}_norm")
        inner, outer = self.feed_forward
        rows += same(f"{theirs}.feed_forward.{inner}", f"{ours}.feed_forward.input")
        rows += same(f"{theirs}.feed_forward.{outer}", f"{ours}.feed_forward.output")
        rows += same(f"{theirs}.feed_forward.layer_norm", f"{ours}.feed_forward_norm")
        return rows
