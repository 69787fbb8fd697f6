"""Tables of accuracy at equal latency."""

from benchmarks.accuracy.equal_latency_tables import machine_tables

NAMES = {"latency": "by latency", "flops": "by FLOPs"}


def result(
    budget: str, method: str = "latency", seed: int = 0, epochs: int = 15, **measured: object
) -> dict[str, object]:
    row = {"task": "gtsrb", "budget": budget, "method": method, "seed": seed, "epochs": epochs}
    return row | {"original_accuracy": 0.99, "macs_share": 0.4} | measured


def tables(*results: dict[str, object]) -> list[list[str]]:
    """The cells of all rows of all tables."""
    text = machine_tables("a processor", {str(place): row for place, row in enumerate(results)}, NAMES)
    assert text.startswith("a processor")
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]


def test_budgets_stand_side_by_side_from_large_to_small():
    heads, _, first, original = tables(
        result("0.35x", accuracy=0.97, measured={"ratio": 0.341}),
        result("0.5x", accuracy=0.985, measured={"ratio": 0.49}),
    )
    assert [head.partition(":")[0] for head in heads] == ["task", "epochs", "method", "0.5x", "0.35x"]
    assert first == ["gtsrb", "15", "by latency", "98.50%, 0.490x, 40%", "97.00%, 0.341x, 40%"]
    assert original[-2:] == ["99.00%", "99.00%"]


def test_several_seeds_show_each_and_the_mean():
    *_, line, _ = tables(
        result("0.5x", seed=1, accuracy=0.98, measured={"ratio": 0.49}),
        result("0.5x", seed=0, accuracy=0.97, measured={"ratio": 0.50}),
        result("0.5x", seed=2, unmet="not met: 0.61x at best"),
    )
    assert line[-1] == (
        "97.00% / 98.00% (mean 97.50%), 0.500x / 0.490x (mean 0.495x), 40%; seed 2: not met: 0.61x at best"
    )


def test_rows_of_other_epochs_are_never_one_cell():
    lines = tables(
        result("0.5x", epochs=6, accuracy=0.9, measured={"ratio": 0.5}),
        result("0.5x", epochs=15, accuracy=0.95, measured={"ratio": 0.5}),
    )
    assert [line[1:2] + line[3:] for line in lines if "by latency" in line] == [
        ["6", "90.00%, 0.500x, 40%"],
        ["15", "95.00%, 0.500x, 40%"],
    ]


def test_what_may_be_lost_has_a_table_of_its_own():
    lines = tables(
        result("0.5x", accuracy=0.98, measured={"ratio": 0.5}),
        result("drop0.5", "flops", accuracy=0.985, measured={"ratio": 0.44}),
    )
    heads = [line for line in lines if line[0] == "task"]
    assert len(heads) == 2
    assert heads[1][-1].startswith("at most 0.5 points lost on validation images")
    assert ["gtsrb", "15", "by FLOPs", "98.50%, 0.440x, 40%"] in lines


def test_another_network_has_lines_of_its_own():
    measured = {"accuracy": 0.98, "measured": {"ratio": 0.5}}
    lines = tables(
        result("0.5x", model="cifar_resnet20", size=None, **measured),
        result("0.5x", seed=1, **measured),
        result("0.5x", model="torchvision:mobilenet_v2", size=64, **measured),
    )
    assert [line[0] for line in lines if "by latency" in line] == ["gtsrb", "gtsrb, torchvision:mobilenet_v2 at 64x64"]
