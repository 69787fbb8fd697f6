"""The rows of the tables for int8 in OpenVINO."""

from benchmarks.precision.openvino_int8_tables import FORM_HEADS, WORTH_HEADS, form_cells, worth_cells

ROW = {
    "title": "a network",
    "accuracy": {
        "onnxruntime fp32": 0.995,
        "openvino fp32": 0.9951,
        "ours int8": 0.9942,
        "nncf int8": 0.993,
        "nncf int8, min-max": 0.9941,
        "0.2x int8": 0.99,
    },
    "macs": {"0.2x": 0.25},
    "integer": {"ours int8": 22, "nncf int8": 23, "0.2x int8": 20},
    "speedup": {
        "onnxruntime fp32": {"ours int8": [3.0, 2.9, 3.1], "nncf int8": [2.8, 2.7, 2.9], "0.2x int8": [5.5, 5.4, 5.6]},
        "openvino fp32": {"ours int8": [2.5, 2.4, 2.6], "nncf int8": [2.4, 2.3, 2.5], "0.2x int8": [5.0, 4.9, 5.1]},
        "nncf int8": {"ours int8": [1.05, 1.0, 1.1], "nncf int8": [1.0, 1.0, 1.0], "0.2x int8": [1.9, 1.8, 2.0]},
    },
}


def test_the_first_table_compares_both_ways_of_quantising():
    found = dict(zip(FORM_HEADS, form_cells(ROW), strict=True))
    assert (found["float32, test"], found["ours, test"], found["NNCF, test"]) == ("99.51%", "99.42%", "99.30%")
    assert found["NNCF by min-max, test"] == "99.41%"
    assert found["ours over NNCF, speed (10% to 90%)"] == "1.05x (1.00 to 1.10)"
    assert (found["integer nodes, ours"], found["integer nodes, NNCF"]) == ("22", "23")


def test_the_second_table_has_a_line_for_each_network_in_int8():
    nncf, ours, pruned = (dict(zip(WORTH_HEADS, cells, strict=True)) for cells in worth_cells(ROW))
    assert (nncf["budget"], ours["budget"], pruned["budget"]) == ("unpruned, NNCF", "unpruned, ours", "0.2x")
    assert (nncf["MACs"], pruned["MACs"]) == ("100%", "25%")
    assert (pruned["original, test"], pruned["int8, test"]) == ("99.50%", "99.00%")
    assert pruned["against the original in ONNX Runtime, float32"] == "5.50x (5.40 to 5.60)"
    assert pruned["against the original in int8 by NNCF"] == "1.90x (1.80 to 2.00)"


def test_random_weights_have_no_accuracy():
    row = ROW | {"accuracy": {}, "macs": {}}
    assert dict(zip(FORM_HEADS, form_cells(row), strict=True))["ours, test"] == ""
    assert [cells[3:5] for cells in worth_cells(row)] == [["", ""]] * 2
