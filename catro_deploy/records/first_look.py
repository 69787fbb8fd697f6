"""The first look, before pruning: the sizes of the image files, and the original's accuracy on them."""

from dataclasses import dataclass

from catro_deploy.records.base import Count, PositiveCount, Share

__all__ = ["FirstLook", "ImageSizes"]


@dataclass(frozen=True)
class ImageSizes:
    """Widths and heights of image files, in pixels.

    ``least`` and ``most`` hold the extremes of each axis, which may come from different images. Of ``files`` images,
    ``looked_at`` were read; ``different`` is the number of distinct sizes. ``resize`` is the shorter side, or height
    and width, to which images are resized before the centre crop; None: they are resized to the network's input size.
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
        """The side of all images, in pixels, if they are square and have the same size; else None."""
        return self.least[0] if self.different == 1 and self.square else None

    def changes(self, width: int, height: int) -> tuple[str, ...]:
        """The effects of resizing to ``width`` x ``height``: enlarged, shrunk, squeezed."""
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
    """The original on images of the requested classes, before pruning.

    Attributes:
        images: number of images.
        accuracy: accuracy as a fraction; None without labels.
        stated: the accuracy that the checkpoint's file states; None if it states none.
        sizes: sizes of the image files; None if the images are not files.
        warnings: suspicions, with their likely causes.
        kind: the kind of images, in words.
        confidence: mean of the largest softmax output; None with labels.
        most_frequent: the share of images that get the most frequent prediction; None with labels.
        invalid: why comparisons with this original are meaningless, as a clause; empty if they are meaningful.
        stated_classes: number of classes that ``stated`` is for, if it is for more than the requested ones.
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
    stated_classes: PositiveCount | None = None

    @property
    def stated_for(self) -> str:
        """`` for all 43 classes``, after the stated accuracy, if it is for more than the requested ones; else empty."""
        return "" if self.stated_classes is None else f" for all {self.stated_classes:,} classes"
