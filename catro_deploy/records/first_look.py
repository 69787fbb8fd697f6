"""The first look, before pruning: the sizes of the image files, and the original's accuracy on them."""

from dataclasses import dataclass

from catro_deploy.records.base import Count, PositiveCount, Share

__all__ = ["FirstLook", "ImageSizes"]


@dataclass(frozen=True)
class ImageSizes:
    """Widths and heights of image files, in pixels.

    ``least`` and ``most`` hold the extremes of each axis, so they may be of different images. Of ``files`` images,
    ``looked_at`` were read. ``resize`` is the shorter side, or height and width, to which they are resized before the
    centre is cut out; None: they are resized to the size that the network gets.
    """

    files: Count
    looked_at: Count
    different: Count
    least: tuple[PositiveCount, PositiveCount]
    most: tuple[PositiveCount, PositiveCount]
    square: bool
    resize: PositiveCount | tuple[PositiveCount, PositiveCount] | None = None

    @property
    def side(self) -> int | None:
        """Width and height of all images, if they are square and of one size."""
        return self.least[0] if self.different == 1 and self.square else None

    def changes(self, width: int, height: int) -> tuple[str, ...]:
        """The changes by resizing to ``width`` x ``height``: enlarged, shrunk, squeezed."""
        wanted = (width, height)
        one_shape = self.least == self.most or (self.square and width == height)
        same_ratio = one_shape and self.least[0] * height == self.least[1] * width
        found = {
            "enlarged": any(have < want for have, want in zip(self.least, wanted, strict=True)),
            "shrunk": any(have > want for have, want in zip(self.most, wanted, strict=True)),
            "squeezed": not same_ratio,
        }
        return tuple(word for word, holds in found.items() if holds)


@dataclass(frozen=True)
class FirstLook:
    """The original on images of the wanted classes, before anything is pruned.

    Attributes:
        images: how many.
        accuracy: a fraction; None without labels.
        stated: the accuracy that the checkpoint's file states, None if it states none.
        sizes: None where the images are not files.
        warnings: suspicions, with the likely causes.
        kind: which images they are.
        confidence: mean of the largest softmax output; None with labels.
        most_frequent: the share of images that are given the most frequent answer; None with labels.
        invalid: why comparisons with this original are meaningless, half a sentence; empty if they are not.
    """

    images: Count
    accuracy: Share | None
    stated: Share | None
    sizes: ImageSizes | None
    warnings: tuple[str, ...] = ()
    kind: str = "validation images"
    confidence: float | None = None
    most_frequent: float | None = None
    invalid: str = ""
