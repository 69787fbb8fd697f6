"""The image size on the command line: inferred, printed, kept by the run, or required."""

from pathlib import Path

from PIL import Image

from tests.tiny import command


def without_size(folder):
    file = folder / "catro.toml"
    file.write_text(file.read_text().replace("\nsize = 16\n", "\n"))


def add_another_size(folder):
    Image.new("RGB", (20, 11)).save(folder / "data/train/even/new.png")


def test_the_size_of_the_images_is_taken_printed_and_kept(tiny):
    without_size(tiny)
    began = command("prune", "--run", "run")
    assert began.exit_code == 0, began.stderr
    assert "\nimages 16x16\noriginal: " in began.stderr
    assert "size = 16" in Path("run/run.toml").read_text().splitlines()
    add_another_size(tiny)
    again = command("prune", "--run", "run", "--force")
    assert again.exit_code == 0, again.stderr
    assert "images of 2 sizes, 11 to 16 high and 16 to 20 wide -> 16x16 (enlarged, shrunk, squeezed)" in again.stderr


def test_images_of_several_sizes_need_one(tiny):
    without_size(tiny)
    add_another_size(tiny)
    refused = command("prune", "--run", "run")
    assert refused.exit_code == 2
    assert "of 2 sizes, 11 to 16 high and 16 to 20 wide" in refused.stderr
    assert "size = 64" in refused.stderr
    assert not Path("run/run.toml").exists()
    given = command("prune", "--run", "run", "--size", "16")
    assert given.exit_code == 0, given.stderr


def test_shrinking_is_warned_of(tiny):
    result = command("prune", "--run", "run", "--size", "8")
    assert "images 16x16 -> 8x8 (shrunk)" in result.stderr
    assert "WARNING: Images are resized: 16x16 -> 8x8 (shrunk)" in result.stderr
