"""The size of the images if ``[data] size`` is not set."""

from catro_deploy.data import open_dataset
from catro_deploy.data.base import Dataset
from catro_deploy.data.sizes import KNOWN_SIDES, image_sizes
from catro_deploy.errors import DataError
from catro_deploy.models import build_model, library_size
from catro_deploy.progress import Progress
from catro_deploy.records import ImageSizes
from catro_deploy.report.images import images_words, sizes_words, skipped_words
from catro_deploy.settings import Settings

__all__ = ["announce_size", "sized", "with_size"]

PROBE = 2


def with_size(settings: Settings) -> Settings:
    """``settings`` with a size of the images.

    If none is given, it is the first of these that is known: the size at which a known dataset is read; the size of the
    image files, if all are square, of one size, and no larger than the size that torchvision or timm made the network
    for; the size that these made it for.

    Raises:
        DataError: none of these is known, or the images are missing.
        ModelError: the model is not known.
    """
    if settings.data.size is not None:
        return settings
    side = _side(settings)
    data = settings.data.model_copy(update={"size": (side, side)})
    return settings.model_copy(update={"data": data})


def sized(settings: Settings) -> tuple[int, int]:
    """Height and width of the images by ``with_size``, which also lists the errors."""
    size = with_size(settings).data.size
    assert size is not None
    return size


def announce_size(dataset: Dataset, size: tuple[int, int], progress: Progress) -> ImageSizes | None:
    """Note how images are resized to ``size`` (height, width): ``images 64x64 -> 32x32 (shrunk)``, and what is skipped.

    Returns:
        The sizes of their files, None if they are not in files.
    """
    height, width = size
    sizes = image_sizes(dataset)
    progress.note(f"images {images_words(sizes, width, height)}")
    if dataset.skipped:
        progress.note(f"WARNING: {skipped_words(dataset.skipped)}")
    return sizes


def _side(settings: Settings) -> int:
    if settings.data.name in KNOWN_SIDES:
        return KNOWN_SIDES[settings.data.name]
    library = library_size(settings.model.name)
    # A factory takes the size, so it cannot provide one. Opening a dataset decodes no files, so any size works here.
    opened = None if ":" in settings.data.name else open_dataset(settings.data, (1, 1), len(settings.model.mean))
    sizes = image_sizes(opened) if opened else None
    own = sizes.side if sizes else None
    if own and (library is None or own <= library):
        return own
    if library is None:
        build_model(settings.model.name, PROBE)  # an unknown name is reported first
        raise _unknown(settings, sizes)
    return library


def _unknown(settings: Settings, sizes: ImageSizes | None) -> DataError:
    if sizes is None:
        found = f"{settings.data.name} provides images of any size"
    else:
        found = f"the images in {settings.data.root} are {sizes_words(sizes)}"
    return DataError(
        f"The input size of {settings.model.name} is not known: [data] size is not set, and {found}.",
        "Write the size that the network was trained with into [data] of catro.toml, such as size = 64, or give it as "
        "--size 64: images are resized to this height and width.",
    )
