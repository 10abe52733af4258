"""What a comparison is written to holds all of it or nothing, and nothing of others' is lost."""

from pathlib import Path

import pytest
from comparisons import example

from regard.compare.folder import folder_for, publish
from regard.compare.results import Comparison, read_comparison
from regard.errors import RegardError, RunFolderError


def page(found: Comparison, folder: Path) -> None:
    (folder / "compare.html").write_text(f"seed {found.seed}", encoding="utf-8")


def written(out: Path, found: Comparison) -> None:
    with folder_for(out) as aside:
        publish(found, aside, out, page)


def test_a_comparison_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "some" / "where"
    written(out, example())
    assert {path.name for path in out.iterdir()} == {"compare.html", "compare.json"}
    assert read_comparison(out / "compare.json") == example()
    assert [path.name for path in out.parent.iterdir()] == ["where"]


def test_an_earlier_comparison_is_replaced_and_other_files_stay(tmp_path: Path) -> None:
    written(tmp_path / "out", example())
    (tmp_path / "out" / "mine.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "out" / "mine.svg").touch()
    (tmp_path / "out" / "decode-time.svg").touch()  # as a longer comparison has
    written(tmp_path / "out", example().model_copy(update={"seed": 8}))
    assert (tmp_path / "out" / "compare.html").read_text(encoding="utf-8") == "seed 8"
    assert (tmp_path / "out" / "mine.txt").read_text(encoding="utf-8") == "mine"
    assert {path.name for path in (tmp_path / "out").glob("*.svg")} == {"mine.svg"}


def test_what_was_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(found: Comparison, folder: Path) -> None:
        page(found, folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), folder_for(tmp_path / "out") as aside:
        publish(example(), aside, tmp_path / "out", fail)
    assert not list(tmp_path.iterdir())


def test_figures_are_kept_where_the_page_fails_and_no_older_page_stays(tmp_path: Path) -> None:
    def fail(found: Comparison, folder: Path) -> None:
        (folder / "compare.csv").write_text(f"seed {found.seed}", encoding="utf-8")
        raise ZeroDivisionError("a plot")

    out = tmp_path / "out"
    written(out, example())
    later = example().model_copy(update={"seed": 8})
    problem = "could not be written: ZeroDivisionError: a plot"
    with pytest.raises(RegardError, match=problem) as met, folder_for(out) as aside:
        publish(later, aside, out, fail)
    assert met.value.hint == "All figures are there, in compare.csv and compare.json."
    assert read_comparison(out / "compare.json") == later
    assert {path.name for path in out.iterdir()} == {"compare.json", "compare.csv"}


def test_the_next_comparison_removes_what_a_killed_one_left_and_no_other_s(tmp_path: Path) -> None:
    killed = tmp_path / ".out.123-0123abcd.partial"
    killed.mkdir()
    (killed / "path.svg").touch()
    others = [".out.note", ".other.123-0123abcd.partial", "out.partial"]
    for name in others:
        (tmp_path / name).mkdir()
    with folder_for(tmp_path / "out") as first:
        assert not killed.exists()
        with folder_for(tmp_path / "out") as second:  # as another process would
            assert first.exists()
            assert second.exists()
    assert {path.name for path in tmp_path.iterdir()} == set(others)


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "absent")
    with pytest.raises(RunFolderError, match="this link leads nowhere"):
        written(tmp_path / "out", example())


def test_a_folder_of_something_else_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "compare.json").write_text("{}", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match="expected a folder, got a file"):
        written(tmp_path / "file", example())
    with pytest.raises(RunFolderError, match="holds something else than a comparison"):
        written(tmp_path / "full", example())
    written(tmp_path / "empty", example())
    assert (tmp_path / "full" / "compare.json").read_text(encoding="utf-8") == "{}"
