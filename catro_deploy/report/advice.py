"""What to try next if a run cost accuracy."""

from catro_deploy.records.report import Report

__all__ = ["advice_on"]


def advice_on(report: Report) -> str:
    """What may keep more accuracy at the same latency; empty if it did not fall significantly, or that was tried."""
    change, plan, verified = report.accuracy_change_ci95, report.latency_plan, report.verification
    fell = change is not None and change[1] < 0
    measured = plan is not None and plan.how == "measured"
    in_int8 = verified is not None and verified.precision.pruned == "int8"
    if not fell or not measured or in_int8 or report.variants or report.search:
        return ""
    rejected = report.quantize is not None and "int8" in report.quantize.lost
    example = "" if rejected else ", such as int8, which leaves room for more channels"
    return f"Accuracy fell. Add --search to compare other settings at the same latency{example}."
