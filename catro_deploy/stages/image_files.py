"""The image files that a run uses: whether they can be decoded, and whether test images are in other splits too."""

from collections.abc import Sequence

from catro_deploy.data.base import Dataset, Split, Subset
from catro_deploy.data.copies import find_copies
from catro_deploy.data.files import as_files
from catro_deploy.data.intact import require_intact
from catro_deploy.data.sources import ImageSource
from catro_deploy.progress import Progress
from catro_deploy.report.wording import count, percent
from catro_deploy.settings import Settings
from catro_deploy.stages.original import Original

__all__ = ["copies_warning", "require_decodable"]


def require_decodable(original: Original, settings: Settings, progress: Progress) -> None:
    """Check that all image files that the run will decode can be decoded, before anything is computed.

    Raises:
        DataError: some cannot.
    """
    data, trains = original.dataset, settings.finetune.epochs > 0
    files = _files(original.wanted, data.test, data.validation, *([data.train] if trains else []))
    if settings.data.skip_corrupt or not files:
        return
    with progress.task("Trying to decode all images", sum(map(len, files))) as task:
        for paths in files:
            require_intact(paths, settings.data.root, task.advance)


def copies_warning(dataset: Dataset, wanted: Sequence[int], progress: Progress) -> str:
    """A warning if test images of the classes ``wanted`` are also training or validation images; else empty."""
    tests, others = _files(wanted, dataset.test), _files(wanted, dataset.train, dataset.validation)
    if not tests or not others:
        return ""
    with progress.task("Comparing test images", sum(map(len, others))) as task:
        found = find_copies(tests[0], others, task.advance)
    if found.example is None:
        return ""
    one, other = found.example
    share = f"{count(found.count)} of {count(found.compared)} ({percent(found.count / found.compared)})"
    return (
        f"Test images that are also training or validation images: {share}, such as {one}, which has the content of "
        f"{other}. Results on them do not show how the network does on new images: remove them from one side."
    )


def _files(wanted: Sequence[int], *splits: Split) -> list[Sequence[ImageSource]]:
    """The image files of the classes ``wanted`` in each of ``splits``, without splits that are not in files."""
    found = [as_files(Subset(split, wanted)) for split in splits]
    return [files.paths for files in found if files is not None]
