"""Uncertainty from few images: intervals of accuracies, and a warning if there are too few test images."""

from catro_deploy.records import Verify
from catro_deploy.report.wording import loss_words, one_image_words
from catro_deploy.statistics.intervals import largest_unseen_loss, wilson
from catro_deploy.units import counted

__all__ = ["few_image_warnings", "interval_of"]

# With fewer images, a single one is more than a point of accuracy.
FEW_IMAGES = 100


def interval_of(share: float | None, images: int) -> tuple[float, float] | None:
    """Wilson's 95% interval of a ``share`` of ``images`` images; None without a share or without images."""
    return None if share is None or not images else wilson(share, images)


def few_image_warnings(verify: Verify | None) -> list[str]:
    """A warning if there are too few test images to show a small loss, or one within ``max_drop``."""
    if verify is None:
        return []
    images, allowed = verify.test_images, verify.max_drop
    unseen = 100 * largest_unseen_loss(images)
    if images >= FEW_IMAGES and not (allowed and unseen > allowed):
        return []
    shown = f"a loss of {loss_words(allowed)}" if allowed else "a small loss"
    return [
        f"{counted(images, 'test image')} cannot show {shown}: {one_image_words(images)}, and even if no "
        f"prediction changed, the 95% interval of the loss would reach {unseen:.2g}."
    ]
