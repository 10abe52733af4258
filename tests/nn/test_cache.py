import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.cache import DecoderCache, KeysValues, PastKeysValues


def memories(sentences: int) -> list[KeysValues]:
    """Keys that tell the sentence they belong to."""
    key = torch.arange(sentences).float()[:, None, None, None].expand(-1, 2, 3, 4).contiguous()
    return [KeysValues(key, key + 0.5)]


def pasts() -> list[PastKeysValues]:
    """The empty past of one layer."""
    return [PastKeysValues()]


def sentences_of(cache: DecoderCache) -> list[int]:
    """The sentence whose memory each row attends to."""
    keys = cache.layers[0].memory.key_bhke.repeat_interleave(cache.group, 0)
    values = cache.layers[0].memory.value_bhkw.repeat_interleave(cache.group, 0)
    assert torch.equal(keys + 0.5, values)
    masks = cache.memory_mask_bs.repeat_interleave(cache.group, 0)
    assert torch.equal(masks.sum(1), keys[:, 0, 0, 0].long() + 1)
    return keys[:, 0, 0, 0].long().tolist()


@given(data=st.data())
def test_any_chain_of_selections_keeps_every_row_with_its_sentence_and_its_past(
    data: st.DataObject,
) -> None:
    sentences = data.draw(st.integers(1, 4))
    mask = torch.ones(sentences, sentences).tril().bool()
    cache = DecoderCache(pasts(), memories(sentences), mask)
    rows_sentence = list(range(sentences))
    past = [[] for _ in rows_sentence]
    for step in range(data.draw(st.integers(1, 6))):
        new = torch.arange(len(past)).float() + 100 * step
        added = data.draw(st.integers(1, 20))
        chunk = new[:, None, None, None].expand(-1, 2, added, 4)
        seen = cache.layers[0].past.append(KeysValues(chunk, -chunk))
        past = [
            history + [value] * added for history, value in zip(past, new.tolist(), strict=True)
        ]
        assert seen.key_bhke[:, 0, :, 0].tolist() == past
        assert seen.value_bhkw[:, 1, :, 3].tolist() == [[-v for v in row] for row in past]
        index = st.integers(0, len(past) - 1)
        rows = data.draw(st.lists(index, min_size=1, max_size=6))
        cache.select(torch.tensor(rows))
        past = [past[row] for row in rows]
        rows_sentence = [rows_sentence[row] for row in rows]
        assert cache.rows == len(rows)
        assert sentences_of(cache) == rows_sentence


def test_beams_of_a_sentence_share_its_memory() -> None:
    cache = DecoderCache(pasts(), memories(3), None)
    stored = cache.layers[0].memory.key_bhke
    cache.select(torch.arange(3).repeat_interleave(4))
    assert cache.group == 4
    assert cache.layers[0].memory.key_bhke is stored
    cache.select(torch.tensor([1, 1, 0, 3, 7, 4, 4, 4, 8, 8, 11, 9]))
    assert cache.layers[0].memory.key_bhke is stored
    cache.select(torch.tensor([0, 1, 2, 3, 8, 9, 10, 11]))
    assert cache.group == 4
    assert cache.layers[0].memory.key_bhke[:, 0, 0, 0].tolist() == [0, 2]


def test_selecting_all_rows_in_order_copies_nothing() -> None:
    cache = DecoderCache(pasts(), memories(2), None)
    chunk = torch.ones(2, 2, 1, 4)
    seen = cache.layers[0].past.append(KeysValues(chunk, chunk))
    cache.select(torch.arange(2))
    again = cache.layers[0].past.append(KeysValues(chunk, chunk))
    assert again.key_bhke.data_ptr() == seen.key_bhke.data_ptr()


def test_the_buffer_doubles() -> None:
    past = PastKeysValues()
    chunk = torch.ones(1, 1, 1, 2)
    pointers = {past.append(KeysValues(chunk, chunk)).key_bhke.data_ptr() for _ in range(100)}
    assert len(pointers) <= 4
