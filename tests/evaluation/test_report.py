"""The report: complete in one file, every text escaped, every figure where it belongs."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from regard.evaluation.report import ReportData, render_report, write_report
from regard.evaluation.samples import Said, marked, spread
from regard.models.config import TransformerConfig
from regard.models.count import parameter_table

EVIL = "<script>alert('x')</script>\"><img src=http://x.example/y onerror=z> & {name}"
VOID = {"meta", "img", "br"}


def validation(step: int, translation: str, **more: object) -> dict:
    return {
        "event": "valid",
        "step": step,
        "loss": 2.0,
        "perplexity": 7.39,
        "bleu": step / 100,
        "chrf": 40.0,
        "bleu_signature": f"tok:13a {EVIL}",
        "chrf_signature": "nc:6",
        "samples": [{"source": EVIL, "reference": "das ist gut", "translation": translation}],
        **more,
    }


RECORDS = [
    {"event": "start", "step": 0},
    {"event": "train", "step": 50, "epoch": 0, "loss": 5.0, "nll": None, "seconds": 3.0},
    {"event": "train", "step": 100, "epoch": 1, "loss": 4.0, "learning_rate": 1e-3, "seconds": 6.0},
    validation(100, "das"),
    {"event": "resume", "step": 100},
    validation(200, "das war gut"),
    validation(300, "das war gut"),
    validation(400, "das ist gut", bleu=3.5),
    {"event": "test", "step": 400, "bleu": 31.234, "chrf": 55.5, "bleu_signature": "tok:13a"},
    {"event": "stop", "step": 400, "seconds": 125.0},
]
DATA = ReportData(
    title=f"runs/{EVIL}",
    description=EVIL,
    records=RECORDS,
    parameters=parameter_table(TransformerConfig(), 37_000, 37_000),
    facts={EVIL: EVIL},
    recipe=f'[model]\ndescription = "{EVIL}"\n',
    commands=[f"regard translate {EVIL}"],
)


class Reader(HTMLParser):
    """Collects elements, text by element, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_text_of_a_corpus_is_shown_and_never_run() -> None:
    reader = read(render_report(DATA))
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not any(name.startswith("on") for _, found in reader.tags for name in found)
    assert reader.text.count(EVIL) >= 7


def test_the_page_loads_nothing_and_its_policy_allows_only_its_own_script() -> None:
    page = render_report(ReportData(title="x", records=RECORDS[:3]))
    assert not re.search(r"\b(src=|href|@import|url\()", page)
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_the_figures_of_the_test_split_come_first_and_signatures_stand_beside_scores() -> None:
    text = read(render_report(DATA)).text
    assert "BLEU31.2on the test split" in text
    assert "TestBLEU31.23tok:13a" in text
    assert f"Validation, step 400BLEU3.50tok:13a {EVIL}" in text
    assert "Perplexity7.39best validation, step 400" in text
    assert "Steps100in epoch 2" in text
    assert "Training time2 min" in text


def test_the_parameters_are_those_of_the_count() -> None:
    text = read(render_report(DATA)).text
    assert "Total63,082,496" in text
    assert "Parameters63.1M63,082,496" in text


def test_what_it_said_stands_latest_first_and_repeats_take_one_row() -> None:
    text = read(render_report(DATA)).text
    rows = ["400das ist gut ✓ as the reference", "200–300das war gut", "100das"]
    places = [text.index(row) for row in rows]
    assert places == sorted(places)


def test_curves_say_from_where_to_where() -> None:
    labels = [found.get("aria-label") for tag, found in read(render_report(DATA)).tags]
    assert (
        "Loss: training from 5 at step 50 to 4 at step 100; "
        "validation from 2 at step 100 to 2 at step 400"
    ) in labels
    assert any(label and label.startswith("Learning rate: rate from 1e-3") for label in labels)


def test_where_training_was_resumed_is_marked() -> None:
    assert "<title>resumed at step 100</title>" in render_report(DATA)


def test_a_run_with_nothing_measured_still_has_a_page() -> None:
    text = read(render_report(ReportData(title="runs/new"))).text
    assert "runs/new" in text
    for section in ("How it learned", "What it said", "Scores", "Parameters", "What made it"):
        assert section not in text


def test_a_report_replaces_the_former_and_takes_any_text(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, ReportData(title="one"))
    write_report(path, ReportData(title="two \ud800 \0 \u202e"))
    assert "two" in path.read_text(encoding="utf-8")
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("said", "reference", "shown"),
    [
        ("das ist gut", "das ist gut", "das ist gut"),
        ("das war gut", "das ist gut", 'das <span class="off">war</span> gut'),
        ("<b>", "das ist", '<span class="off">&lt;b&gt;</span>'),
        ("", "das", ""),
        (
            "das gut",
            "das ist gut",
            'das <i class="gap" title="words are left out here"></i>gut',
        ),
        ("東大", "東京", '東<span class="off">大</span>'),
    ],
)
def test_differences_from_the_reference_are_marked(said: str, reference: str, shown: str) -> None:
    assert marked(said, reference) == shown


def test_of_many_rows_a_spread_with_first_and_last_is_shown() -> None:
    rows = [Said(str(number), number, number) for number in range(100)]
    found = [row.first for row in spread(rows, 8)]
    assert len(found) == 8
    assert (found[0], found[-1]) == (0, 99)
    assert found == sorted(set(found))
    assert spread(rows[:3], 8) == rows[:3]


def test_a_classifiers_page_shows_what_was_taken_for_what() -> None:
    figures = {"loss": 0.5, "accuracy": 0.75, "f1": 0.7}
    confused = {"labels": ["yes", EVIL], "confusion": [[3, 1], [0, 0]]}
    records = [
        {"event": "valid", "step": 10, **figures, "accuracy": 0.5, "labels": [], "confusion": []},
        {"event": "valid", "step": 20, **figures, **confused},
    ]
    page = render_report(ReportData(title="run", records=records, unit="text"))
    assert "What it took for what" in page
    assert "Right, validation text" in page
    assert "75.0 %" in page
    assert "best validation, step 20" in page
    assert "per text" in page
    cells = re.findall(r'<td class="number" style="[^"]*">(\d+)</td>', page)
    assert cells == ["3", "1", "0", "0"]
    assert EVIL not in page
    assert "BLEU" not in page


def test_what_is_best_is_so_by_the_metric_that_the_model_is_kept_by() -> None:
    names = ["yes", "no"]
    records = [
        {"event": "valid", "step": 10, "loss": 0.5, "accuracy": 0.9, "f1": 0.4,
         "labels": names, "confusion": [[9, 0], [1, 0]]},
        {"event": "valid", "step": 20, "loss": 0.6, "accuracy": 0.8, "f1": 0.7,
         "labels": names, "confusion": [[7, 2], [0, 1]]},
    ]  # fmt: skip
    page = render_report(ReportData(title="run", records=records, best_metric="f1"))
    assert re.findall(r'<td class="number" style="[^"]*">(\d+)</td>', page) == ["7", "2", "0", "1"]
    text = read(page).text
    assert "Validation, step 20macro F170.00 %" in text
    assert "Accuracy80.0 %best validation, step 20" in text
    assert "macro F170.0 %best validation, step 20" in text


def test_a_language_models_page_shows_how_it_goes_on() -> None:
    records = [
        {
            "event": "valid",
            "step": step,
            "loss": 4.0 / step,
            "perplexity": 3.0,
            "samples": [{"prompt": EVIL, "text": f"said at {step} {EVIL}"}],
        }
        for step in (1, 2)
    ]
    page = render_report(ReportData(title="run", records=records, unit="token"))
    assert page.index("said at 2") < page.index("said at 1")
    assert "<dt>Prompt</dt>" in page
    assert "reference" not in page.lower()
    assert "Underlined" not in page
    assert EVIL not in page
    assert "2.000" in page
