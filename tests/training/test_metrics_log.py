import json
import math
from pathlib import Path

import pytest
from training.records import read_metrics

from regard.errors import RunFolderError
from regard.training.metrics import MetricsLog, open_curves


def test_a_record_is_a_line_whatever_text_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write({"event": "valid", "text": "a\r\nb\u2028ü", "loss": math.nan, "deep": [math.inf]})
    log.close()
    data = path.read_bytes()
    assert data.count(b"\n") == 1
    assert b"\r" not in data
    expected = {"event": "valid", "text": "a\r\nb\u2028ü", "loss": None, "deep": [None]}
    assert json.loads(data) == expected
    assert log.length == len(data)


def test_a_resumed_log_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write({"step": 1})
    length = log.sync()
    log.write({"step": 2})
    log.close()
    again = MetricsLog(path, length)
    again.write({"step": 22})
    again.close()
    assert read_metrics(path) == [{"step": 1}, {"step": 22}]


@pytest.mark.parametrize("length", [None, 10_000])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, length: int | None) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "lo')
    assert read_metrics(path) == [{"step": 1}]
    log = MetricsLog(path, length)
    log.write({"step": 2})
    log.close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "metrics.jsonl"
    with pytest.raises(RunFolderError) as refused:
        MetricsLog(path)
    assert str(refused.value) == (
        f"{path}: cannot be written: No such file or directory\n"
        "  What was there before is as it was."
    )


def test_a_full_disk_is_named_and_what_was_logged_stays(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write({"event": "train", "step": 1})
    log.close()
    full = MetricsLog(path)
    with Path("/dev/full").open("ab", buffering=0) as device:
        full._file = device
        with pytest.raises(RunFolderError) as refused:
            full.write({"event": "train", "step": 2})
    assert str(refused.value).startswith(f"{path}: cannot be written: No space left on device\n")
    assert path.read_text() == '{"event": "train", "step": 1}\n'


def test_tensorboard_gets_the_same_figures(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    curves = open_curves(tmp_path, 0)
    curves.write({"event": "start", "step": 0})
    curves.write({"event": "train", "step": 3, "loss": 2.5, "nll": None})
    curves.close()
    reader = events.EventAccumulator(str(tmp_path))
    reader.Reload()
    assert reader.Tags()["scalars"] == ["train/loss"]
    assert [(event.step, event.value) for event in reader.Scalars("train/loss")] == [(3, 2.5)]
