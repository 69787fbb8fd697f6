"""What was not checked because the target could not be reached."""

from catro_deploy.records import Plan
from catro_deploy.report.verdict import prediction_word
from catro_deploy.report.wording import loss_words

__all__ = ["unchecked_words"]


def unchecked_words(plan: Plan, max_drop: float | None, *, can_be_added: bool) -> str:
    """What was not checked on the target of ``plan``, and how to check it.

    ``can_be_added``: whether this version can run networks on such a device at all.
    """
    latency = plan.latency
    if latency is None:
        times = "its latency (not known)"
    else:
        ratio = latency.predicted_us / latency.original_us
        times = f"its latency ({ratio:.3f}x of the original's: {prediction_word(latency)}, not measured)"
    drop = "" if max_drop is None else f"; max_drop, {loss_words(max_drop)}, was not applied"
    found = (
        f"NOT CHECKED on {plan.target}, which cannot be reached from here: that the network runs there, its accuracy "
        f"there, {times}{drop}."
    )
    if not can_be_added:
        return found
    return (
        f"{found} To check: catro-deploy device add NAME --ssh USER@HOST --target {plan.target}, then the same command "
        "again; or carry a bundle there: catro-deploy bundle"
    )
