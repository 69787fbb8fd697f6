import ast
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

import catro_deploy
from catro_deploy.cli.console import Lines, Screen, print_result


@pytest.fixture
def screen():
    stream = io.StringIO()
    return Screen(Console(file=stream, force_terminal=True, width=120)), stream


def test_a_screen_shows_title_count_and_notes(screen):
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


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def followed(capsys, steps, seconds, text=""):
    """The lines that a task of ``steps`` steps, each taking ``seconds``, writes to a log."""
    clock = Clock()
    with Lines(clock).task("Scoring", steps) as task:
        for _ in range(steps):
            clock.now += seconds
            task.advance()
            if text:
                task.describe(text)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_short_work_writes_nothing_to_a_log_but_a_training_its_last_line(capsys):
    assert followed(capsys, 100, 0.1) == []
    assert followed(capsys, 10, 1.2, "epoch 10/10, loss 0.1") == ["Scoring: done in 0:12; epoch 10/10, loss 0.1"]


def test_long_work_writes_each_tenth_with_the_time_left_but_not_more_often_than_every_15_seconds(capsys):
    assert followed(capsys, 4, 10.0) == ["Scoring: 50%, 0:20 elapsed, 0:20 left", "Scoring: done in 0:40"]
    lines = followed(capsys, 3600, 1.0)
    assert lines[:2] == ["Scoring: 0%, 0:15 elapsed, 59:45 left", "Scoring: 10%, 6:00 elapsed, 54:00 left"]
    assert lines[-2:] == ["Scoring: 90%, 54:00 elapsed, 6:00 left", "Scoring: done in 1:00:00"]
    assert len(lines) == 11


def test_very_long_work_is_never_silent_for_more_than_ten_minutes(capsys):
    lines = followed(capsys, 6 * 3600, 1.0)
    assert lines[:3] == [
        "Scoring: 0%, 0:15 elapsed, 5:59:45 left",
        "Scoring: 3%, 10:15 elapsed, 5:49:45 left",
        "Scoring: 6%, 20:15 elapsed, 5:39:45 left",
    ]


def test_the_time_left_goes_by_what_was_done_since_the_start(capsys):
    clock = Clock()
    with Lines(clock).task("Fine-tuning", 10, done=8) as task:
        clock.now += 3700
        task.advance()
    assert capsys.readouterr().err.splitlines()[0] == "Fine-tuning: 90%, 1:01:40 elapsed, 1:01:40 left"


def test_a_task_that_fails_is_not_called_done(capsys):
    def fail():
        with Lines().task("Fine-tuning", 10) as task:
            task.describe("epoch 1/10")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert capsys.readouterr().err == ""


def test_notes_are_lines_on_stderr(capsys):
    Lines().note("done")
    assert capsys.readouterr() == ("", "done\n")


def titles():
    """All task titles that are string literals in the package."""
    for path in Path(catro_deploy.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2]
            if called in ("task", "Errand", "logits_errand") and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def test_bars_fit_80_columns():
    found = set(titles())
    assert "Measuring both networks" in found
    for title in found:
        stream = io.StringIO()
        progress = Screen(Console(file=stream, force_terminal=True, width=80))
        with progress.task(title, 300_000) as task:
            task.advance(299_999)
            task.describe("epoch 40/40, loss 0.123, validation accuracy 98.00%, " * 2)
            with progress.task("Drawn anew", 1):
                pass
        lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in stream.getvalue().splitlines()]
        drawn = next(line for line in lines if "299999/300000" in line)
        assert title in drawn
        assert "left" in drawn
        assert max(map(len, lines)) <= 80


def test_in_a_file_a_wide_table_is_neither_cut_nor_wrapped(capsys):
    table = Table(box=None, show_header=False)
    for _ in range(4):
        table.add_column(no_wrap=True)
    words = [letter * 60 for letter in "abcd"]
    table.add_row(*words)
    print_result("first", table)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["first"], words]


def test_a_closed_progress_stream_does_not_end_the_work():
    """As after ``2>&1 | head``: the reader has closed its end."""
    code = "from catro_deploy.cli.console import Lines\nfor _ in range(3): Lines().note('working')\nprint('done')"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_no_figure_is_cut_on_a_narrow_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setenv("TERM", "xterm")
    table = Table("run", "MACs", box=None)
    table.add_row("x86-cpu-speed_limits", "40,813,056")
    print_result(table)
    cells = [re.sub(r"\x1b\[\d*m", "", line).ljust(24) for line in stream.getvalue().splitlines()[1:]]
    assert {len(line) for line in cells} == {24}
    text = "".join("".join(line.split()) for line in cells)
    assert sorted(text) == sorted("x86-cpu-speed_limits40,813,056")
