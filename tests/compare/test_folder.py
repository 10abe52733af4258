"""What a comparison is written to holds all of it or nothing, and nothing of others' is lost."""

from pathlib import Path

import pytest
from comparisons import example

from regard.compare.folder import folder_for, publish
from regard.compare.results import Comparison, read_comparison
from regard.errors import RunFolderError


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
    written(tmp_path / "out", example().model_copy(update={"seed": 8}))
    assert (tmp_path / "out" / "compare.html").read_text(encoding="utf-8") == "seed 8"
    assert (tmp_path / "out" / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_was_stopped_leaves_nothing_behind(error: type[BaseException], tmp_path: Path) -> None:
    def fail(found: Comparison, folder: Path) -> None:
        page(found, folder)
        raise error

    with pytest.raises(error), folder_for(tmp_path / "out") as aside:
        publish(example(), aside, tmp_path / "out", fail)
    assert not list(tmp_path.iterdir())


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
