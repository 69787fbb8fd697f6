"""How well the layers were reconstructed: divergence of the outputs, and the layers that are explained least."""

from catro_deploy.records import ReconstructionPlan
from catro_deploy.report import svg
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import count, nats, percent
from catro_deploy.settings.sides import size_text
from catro_deploy.units import counted

__all__ = ["layers_table", "left_table", "losses_table", "reconstruction_chart", "reconstruction_line", "solved_words"]

SHOWN = 10


def reconstruction_line(record: ReconstructionPlan) -> str:
    """A one-line summary of the reconstruction from plan.json."""
    before, after = record.kl_cut, record.kl_reconstructed
    worst = _from_lowest(record)[:1]
    least = "".join(f"; least explained: {name}, {percent(share)}" for name, share in worst) if after < before else ""
    return f"reconstructed: KL from the original's outputs {nats(before)} -> {nats(after)}{least}"


def solved_words(record: ReconstructionPlan, resized_to: tuple[int, int] | None = None) -> str:
    """What was solved, and what the figures mean; ``resized_to`` is the size at which the network computes."""
    size = f" for images resized to {size_text(resized_to)}" if resized_to else ""
    words = (
        f"KL divergence of the outputs from the original's{size}, at temperature 2, on training images held out from "
        "solving."
    )
    if not record.kl_reconstructed < record.kl_cut:
        return f"{words} Solving again brought the outputs no closer: the layers keep the original's weights."
    left = f", {count(len(record.left))} not" if record.left else ""
    solved = len(record.explained)
    return f"{words} {counted(solved, 'layer was', 'layers were')} solved again{left}."


def losses_table(record: ReconstructionPlan) -> Table:
    """Divergence after the cut, as predicted, and after reconstruction."""
    predicted = record.loss_predicted
    rows = [("After the cut", nats(record.kl_cut)), ("After reconstruction", nats(record.kl_reconstructed))]
    if predicted is not None:
        rows.insert(1, ("Predicted by the choice of widths", nats(predicted)))
    return Table(("Outputs", "Mean KL from the original's"), tuple(rows), frozenset({1}))


def layers_table(record: ReconstructionPlan) -> Table:
    """R² of each layer that was solved, in the order of execution; no rows if the solution is not used."""
    used = record.kl_reconstructed < record.kl_cut
    rows = tuple((name, percent(share)) for name, share in record.explained.items()) if used else ()
    return Table(("Layer", "Output explained (R²)"), rows, frozenset({1}))


def left_table(record: ReconstructionPlan) -> Table:
    """Layers that were affected by the cut but keep their weights, with the reason."""
    return Table(("Layer left as it is", "Reason"), tuple(record.left.items()))


def reconstruction_chart(record: ReconstructionPlan) -> str:
    """A bar of R² for each of the least explained layers, lowest first."""
    shown = _from_lowest(record)[:SHOWN]
    parts = svg.grid(svg.Axis(0, 100, 25), "%")
    for number, (name, share) in enumerate(shown):
        drawn = [
            svg.name(name, "end"),
            svg.rect(0, -6, 100, 12, "track", hint=f"{name}: {percent(share)}"),
            svg.rect(0, -6, min(max(share, 0), 1) * 100, 12, "bar pruned"),
            svg.value(percent(share), faint=False),
        ]
        parts.append(svg.row(number, drawn))
    some = "All layers, the lowest first"
    if len(record.explained) > len(shown):
        some = "The layers that are explained least"
    caption = (
        f"{some}: R², the share of the variance of a layer's target that its output explains. The target is the "
        "original's output; where outputs are added up, the original's sum minus what other layers contribute. Layers "
        "that are solved together have one R²."
    )
    worst = f"Explained least: {shown[0][0]}, {percent(shown[0][1])}."
    legend = svg.legend(("pruned", "explained"), ("track", "not explained"))
    return svg.figure("Outputs explained", worst, parts, f"--rows:{len(shown)}", "rows", caption, legend)


def _from_lowest(record: ReconstructionPlan) -> list[tuple[str, float]]:
    return sorted(record.explained.items(), key=lambda item: float(item[1]))
