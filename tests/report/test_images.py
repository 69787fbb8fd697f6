from dataclasses import replace
from pathlib import Path

from catro_deploy.records import FirstLook, ImageSizes
from catro_deploy.records.figures import ImageFigures
from catro_deploy.report.html import to_html
from catro_deploy.report.images import accuracy_words, images_words, size_warning, sizes_words, skipped_words
from catro_deploy.report.markdown import to_markdown
from tests.report.made import make_bench, make_finetune, make_plan, make_report, make_verify

UNIFORM = ImageSizes(files=40, looked_at=40, different=1, least=(64, 64), most=(64, 64), square=True)
PHOTOGRAPHS = ImageSizes(files=9000, looked_at=2000, different=12, least=(320, 240), most=(640, 480), square=False)


def test_sizes_in_words():
    assert sizes_words(UNIFORM) == "64x64"
    assert sizes_words(PHOTOGRAPHS) == "of 12 sizes, 240 to 480 high and 320 to 640 wide in 2,000 of 9,000 files"
    tall = ImageSizes(files=2, looked_at=2, different=2, least=(160, 20), most=(160, 1200), square=False)
    assert sizes_words(tall) == "of 2 sizes, 20 to 1200 high and 160 wide"


def test_what_becomes_of_images_in_words():
    """Height first, as in settings."""
    assert images_words(PHOTOGRAPHS, 48, 24) == f"{sizes_words(PHOTOGRAPHS)} -> 24x48 (shrunk, squeezed)"
    assert images_words(UNIFORM, 64, 64) == images_words(None, 64, 64) == "64x64"
    assert images_words(UNIFORM, 32, 32) == "64x64 -> 32x32 (shrunk)"
    assert images_words(UNIFORM, 224, 224) == "64x64 -> 224x224 (enlarged)"
    assert images_words(PHOTOGRAPHS, 224, 224).endswith("-> 224x224 (shrunk, squeezed)")
    cropped, both = replace(PHOTOGRAPHS, resize=256), replace(PHOTOGRAPHS, resize=(240, 256))
    assert images_words(cropped, 224, 224).endswith("-> 224x224 (shorter side resized to 256, centre crop)")
    assert images_words(both, 224, 224).endswith("-> 224x224 (resized to 240x256, centre crop)")
    assert size_warning(cropped, 224, 224) == ""


def test_only_what_is_resized_is_warned_of():
    assert size_warning(UNIFORM, 64, 64) == size_warning(None, 64, 64) == ""
    assert "64x64 -> 32x32 (shrunk)" in size_warning(UNIFORM, 32, 32)


def test_the_originals_accuracy_in_words():
    look = FirstLook(400, 0.982, None, UNIFORM)
    assert accuracy_words(look) == "98.20% of 400 validation images right"
    assert accuracy_words(replace(look, stated=0.99)).endswith("right (its checkpoint states 99.00%)")
    assert "without labels" in accuracy_words(replace(look, accuracy=None))
    assert accuracy_words(FirstLook(0, None, None, None)) == "accuracy not known: there are no validation images"


def test_the_report_says_both_under_how_it_was_measured_and_warns():
    look = FirstLook(400, 0.25, None, UNIFORM, ("Something is wrong with the input.",))
    plan = make_plan(first_look=look)
    report = make_report(plan, make_verify(), make_bench(), finetune=make_finetune())
    assert report.images.size == "64x64 -> 32x32 (shrunk)"
    assert report.warnings[0] == "Something is wrong with the input."
    written = to_markdown(report)
    conditions = written.split("## How it was measured")[1].split("##")[0]
    assert "- Images: 64x64 -> 32x32 (shrunk)" in conditions
    assert "25.00% of 400 validation images right" in conditions
    assert "25.00% of 400 validation images right" in to_html(report)


def test_a_plan_without_a_first_look_says_the_size_alone():
    report = make_report(make_plan(), make_verify(), make_bench(), finetune=make_finetune())
    assert report.images == ImageFigures("32x32", None, None)


def test_skipped_files_are_counted_and_some_are_named():
    files = [Path(f"{number}.jpg") for number in range(7)]
    assert skipped_words(files[:1]) == "1 corrupt image file is skipped: 0.jpg"
    assert skipped_words(files[:2]) == "2 corrupt image files are skipped: 0.jpg, 1.jpg"
    assert skipped_words(files).endswith("4.jpg and 2 more")
