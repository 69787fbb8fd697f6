import io

import pytest
from rich.console import Console

from catro_deploy.cli.console import Lines, Screen


@pytest.fixture
def screen():
    stream = io.StringIO()
    return Screen(Console(file=stream, force_terminal=True, width=120)), stream


def test_a_screen_shows_title_count_and_what_is_said(screen):
    progress, stream = screen
    with progress.task("Fine-tuning", 10, done=4) as task:
        task.advance()
        task.describe("accuracy [98%]")
        with progress.task("Batches", 2) as inner:
            inner.advance(2)
        progress.note("epoch [5] saved")
    drawn = stream.getvalue()
    assert "Fine-tuning" in drawn
    assert "5/10" in drawn
    assert "accuracy [98%]" in drawn
    assert "epoch [5] saved" in drawn


def test_bars_go_when_their_task_ends_or_fails_and_can_start_again(screen):
    progress, stream = screen
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), progress.task("Fine-tuning", 10):
            raise KeyboardInterrupt
        progress.note("after")
        assert stream.getvalue().endswith("after\n")


def test_lines_tell_descriptions_and_notes_only(capsys):
    with Lines().task("Scoring", 3, done=1) as task:
        task.advance()
        task.describe("stage1")
        task.advance()
    Lines().note("done")
    assert capsys.readouterr() == ("", "Scoring: stage1\ndone\n")
