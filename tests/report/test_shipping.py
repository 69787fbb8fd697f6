import re
from dataclasses import replace

from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.shipping import shipping_words
from tests.report.made import CLASSES, make_bench, make_plan, make_report, make_shipped, make_verify
from tests.report.pages import Page


def test_file_input_and_outputs_in_three_lines():
    assert dict(shipping_words(make_shipped(), "runs/a-run/ship")) == {
        "ship": "runs/a-run/ship/pruned.int8.onnx (int8, 12.3 kB; the original: 56.8 kB)",
        "input": "image, float32 1x3x32x32 NCHW, RGB, normalised beforehand: (pixel / 255 - mean) / std, "
        "mean [0.5, 0.25, 0.125], std [0.25, 0.5, 1]; values from -2 to 2",
        "outputs": f"0 {CLASSES[0]}, 1 {CLASSES[1]}",
    }


def test_names_from_right_to_left_keep_their_index_in_a_report():
    shipped = make_shipped(classes=("קף", "stop"))
    assert dict(shipping_words(shipped))["outputs"] == "0 \u2068קף\u2069, 1 stop"
    assert dict(shipping_words(shipped, isolate=False))["outputs"] == "0 קף, 1 stop"


def test_many_classes_are_cut():
    words = dict(shipping_words(make_shipped(classes=tuple(f"c{place}" for place in range(1000)))))["outputs"]
    assert words.endswith(", 49 c49 and 950 more, see model.json")


def test_raw_pixels_and_probabilities():
    whole = make_shipped()
    given = replace(whole.input, type="uint8", shape=(1, 32, 32, 3), layout="NHWC", values="pixel", range=(0, 255))
    raw = replace(whole, input=given, output=replace(whole.output, name="probabilities"))
    words = dict(shipping_words(raw))
    assert words["input"] == (
        "image, uint8 1x32x32x3 NHWC, RGB, raw pixels from 0 to 255; normalised inside the network: "
        "mean [0.5, 0.25, 0.125], std [0.25, 0.5, 1]"
    )
    assert words["outputs"].startswith("probabilities (softmax): 0 ")
    report = make_report(make_plan(), make_verify(), make_bench(), shipped=raw)
    for text in (to_markdown(report), to_html(report)):
        assert "Raw pixels, uint8, channels last (NHWC); the network normalises them." in text


def test_the_report_says_what_to_ship_and_how_to_feed_that_file():
    report = make_report(make_plan(), make_verify(), make_bench(), shipped=make_shipped())
    text, page = to_markdown(report), to_html(report)
    shipped = "- ship: ship/pruned.int8.onnx (int8, 12.3 kB; the original: 56.8 kB)"
    assert f"## What to ship\n\n{shipped}\n- input: image" in text
    assert re.search(r"\| File \| +56\.8 kB \| +12\.3 kB \|", text)
    assert any(f"classes: 30 km/h, {CLASSES[1]}. " in text for text in Page(page).texts)
    assert "<h2>What to ship</h2>" in page
    assert '"pruned.int8.onnx"' in text
    assert re.search(r"<dt>Outputs</dt><dd>0 30 km/h, 1 &lt;b&gt;", page)


def test_without_a_shipped_network_there_is_no_such_section():
    report = make_report(make_plan(), make_verify(), make_bench())
    assert "What to ship" not in to_markdown(report) + to_html(report)
