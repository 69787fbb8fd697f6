"""Descriptions of the images, and of the original's accuracy on them before pruning."""

from collections.abc import Sequence

from catro_deploy.records import FirstLook, ImageSizes
from catro_deploy.report.wording import count, percent
from catro_deploy.units import counted

__all__ = ["accuracy_words", "images_words", "resizing_words", "size_warning", "sizes_words", "skipped_words"]

SHOWN = 5


def sizes_words(sizes: ImageSizes) -> str:
    """``64x48`` (height x width), or ``of 12 sizes, 240 to 480 high and 320 to 640 wide``.

    The number of files follows if not all were read.
    """
    sample = "" if sizes.looked_at == sizes.files else f" in {count(sizes.looked_at)} of {count(sizes.files)} files"
    width, height = (_range(*ends) for ends in zip(sizes.least, sizes.most, strict=True))
    if sizes.different == 1:
        return f"{height}x{width}{sample}"
    return f"of {count(sizes.different)} sizes, {height} high and {width} wide{sample}"


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def images_words(sizes: ImageSizes | None, width: int, height: int) -> str:
    """The images as fed to the network: ``64x64``, or ``64x64 -> 32x32 (shrunk)``, or how they are cropped."""
    if sizes is not None and sizes.resize is not None:
        return f"{sizes_words(sizes)} -> {height}x{width} ({resizing_words(sizes.resize)})"
    if sizes is None or not (changes := sizes.changes(width, height)):
        return f"{height}x{width}"
    return f"{sizes_words(sizes)} -> {height}x{width} ({', '.join(changes)})"


def resizing_words(resize: int | tuple[int, int]) -> str:
    """How images are resized before the centre crop."""
    if isinstance(resize, int):
        return f"shorter side resized to {resize}, centre crop"
    return f"resized to {resize[0]}x{resize[1]}, centre crop"


def size_warning(sizes: ImageSizes | None, width: int, height: int) -> str:
    """A warning that images are resized, perhaps unlike in the network's training; empty if they are not resized."""
    if sizes is None or sizes.resize is not None or not sizes.changes(width, height):
        return ""
    return (
        f"Images are resized: {images_words(sizes, width, height)}. This is right only if the network was trained on "
        f"images that were resized in the same way; otherwise set size in [data] to the size that it was trained with."
    )


def skipped_words(files: Sequence[object]) -> str:
    """``2 corrupt image files are skipped: a.jpg, b.jpg``; at most five are named."""
    subject = counted(len(files), "corrupt image file is", "corrupt image files are")
    more = f" and {count(len(files) - SHOWN)} more" if len(files) > SHOWN else ""
    return f"{subject} skipped: {', '.join(map(str, files[:SHOWN]))}{more}"


def accuracy_words(look: FirstLook) -> str:
    """``98.20% of 400 validation images right``, or what is known without labels."""
    if not look.images:
        return f"accuracy not known: there are no {look.kind}"
    if look.accuracy is None:
        sure = "" if look.confidence is None else f"; mean confidence {percent(look.confidence)}"
        most = look.most_frequent
        frequent = "" if most is None else f", most frequent prediction on {percent(most)} of them"
        return f"accuracy not known: {count(look.images)} {look.kind} without labels{sure}{frequent}"
    stated = "" if look.stated is None else f" (its checkpoint states {percent(look.stated)}{look.stated_for})"
    return f"{percent(look.accuracy)} of {count(look.images)} {look.kind} right{stated}"
