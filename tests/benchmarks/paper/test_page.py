"""The page with the paper's tables: figures checked by hand, and rows that were not run."""

from benchmarks.paper.page import page
from benchmarks.paper.rows import rows_of


def result(accuracy, macs=0.0919):
    shared = {"untrained_accuracy": 0.2, "original_accuracy": 0.995, "epochs": 60, "test_images": 100}
    return {"accuracy": accuracy, "macs_share": macs} | shared


def test_seeds_are_averaged_and_the_drop_is_from_our_own_original():
    results = {
        "1-speed_limits-90-catro-seed0": result(0.99),
        "1-speed_limits-90-catro-seed1": result(0.98, macs=0.092),
    }
    (line,) = [line for line in page(results).splitlines() if line.startswith("| speed_limits-90 | CATRO")]
    assert line.split(" | ")[2:] == [
        "90.8%", "99.39%", "20.00% (20.00% to 20.00%)", "98.50% (98.00% to 99.00%)", "1.22", "2", "99.50%", "1.00",
        "60 |",
    ]  # fmt: skip


def test_what_was_not_run_is_stated():
    text = page({"1-speed_limits-90-catro-seed0": result(0.99)})
    assert "Not run yet: 1-speed_limits-90-l1," in text
    assert "1-speed_limits-90-catro," not in text


def test_a_training_on_a_gpu_is_marked():
    on_gpu = {**result(0.98), "trained_on": {"device": "NVIDIA H100 80GB HBM3", "torch": "2.11.0"}}
    text = page({"1-speed_limits-90-catro-seed0": on_gpu, "1-speed_limits-90-l1-seed0": result(0.97)})
    assert "| 98.00%* |" in text
    assert "| 97.00% |" in text


def test_a_brief_fine_tuning_is_shown_with_the_papers_figure():
    (line,) = [
        line
        for line in page({"2-cifar_resnet20-briefly-catro-seed0": result(0.91)}).splitlines()
        if line.startswith("| cifar_resnet20-briefly | CATRO")
    ]
    assert line.split(" | ")[3] == "91.76%"


def test_ours_is_shown_with_the_papers_figure_for_catro():
    results = {
        "1-direction_signs-97-ours-gentle-seed0": result(0.98),
        "2-cifar_resnet32-20 epochs-ours-cutmix-gentle-seed0": result(0.925),
    }
    figures = [line.split(" | ")[3] for line in page(results).splitlines() if " | ours" in line]
    assert figures == ["98.59%", "93.17%"]


def test_rows_have_names_of_their_own():
    rows = [row.name for table in (1, 2, 3, 4) for row in rows_of(table, (0, 1))]
    assert len(rows) == len(set(rows)) == 2 * (20 + 25 + 22 + 6)


def test_channels_that_the_other_task_chose_are_judged_on_this_one():
    row = next(row for row in rows_of(1, (0,)) if row.case == "speed_limits-97-exchanged")
    assert (row.classes, row.chosen_for, row.kept_percent) == (("speed_limits",), ("direction_signs",), 2.28)
