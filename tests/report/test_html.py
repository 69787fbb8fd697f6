import re
from dataclasses import replace

import pytest

from catro_deploy.records import GroupPlan
from catro_deploy.report.html import to_html
from tests.report.made import CLASSES, make_bench, make_finetune, make_plan, make_report, make_verify
from tests.report.pages import Page


def page(plan=None, verify=None, bench=None, finetune=None):
    report = make_report(plan or make_plan(), verify or make_verify(), bench or make_bench(), finetune=finetune)
    return to_html(report)


@pytest.mark.parametrize("epochs", [0, 1, 2, 40])
def test_html_is_well_formed_with_unique_ids(epochs):
    parsed = Page(page(finetune=make_finetune(epochs) if epochs else None))

    assert len(parsed.ids) == len(set(parsed.ids))
    assert ("Fine-tuning" in parsed.texts) == bool(epochs)


def test_html_asks_nothing_of_the_network_and_runs_nothing():
    html = page(finetune=make_finetune())

    assert not re.findall(r"https?://|url\(|@import", html)
    forbidden = {"script", "link", "img", "iframe", "object", "embed"}
    assert not forbidden & {tag for tag, _ in Page(html).seen}
    assert "default-src 'none'" in html


def test_class_names_are_shown_as_text_everywhere():
    html = page()

    assert "<b>" not in html
    assert any(CLASSES[1] in text for text in Page(html).texts)


def test_class_names_from_right_to_left_stay_in_their_order():
    names = ("קף", "stop")
    html = page(make_plan(classes=names), make_verify(classes=names))

    assert "2 of 43 classes: \u2068קף\u2069, stop." in html
    assert '<th scope="row" dir="auto">קף</th>' in html


def test_names_from_outside_cannot_become_markup():
    evil = '"><script>x</script>'
    plan = make_plan(model=evil, target=evil, settings={"classes": [evil], evil: evil})
    bench = make_bench(warnings=(evil,), environment={evil: evil, "runtime": evil})
    verify = make_verify(problems=(evil,), runtime=evil)

    assert "<script" not in page(plan, verify, bench, make_finetune(device=evil))


def test_pictures_have_alternative_texts():
    parsed = Page(page(finetune=make_finetune()))
    pictures = [attrs for tag, attrs in parsed.seen if tag == "svg" and attrs.get("role") == "img"]

    assert len(pictures) == 5
    assert all(set(attrs["aria-labelledby"].split()) <= set(parsed.ids) for attrs in pictures)


def test_headline_has_speedup_accuracy_and_size():
    texts = "".join(Page(page()).texts)

    assert "1.84×" in texts
    assert "−0.32 points" in texts
    assert "−75.0%" in texts


def test_a_slower_network_is_called_slower_at_the_top():
    top = page(bench=make_bench(0.87, 0.85, 0.89)).split("<h2>")[0]

    assert "SLOWER: 0.87x" in top
    assert "0.87×" in top
    assert "faster" not in top.split("</style>")[1]


def test_warnings_stand_before_the_first_section():
    html = page()

    verdict = html.index("The figures are valid. Keep in mind:")
    assert html.index("Read this first") < verdict < html.index("Other processes kept") < html.index("<h2>")


def test_wide_networks_are_drawn_by_share_and_say_so():
    wide = GroupPlan("wide", 2048, tuple(range(512)), ("wide",))
    plan = make_plan(groups=2)

    html = page(replace(plan, groups=(*plan.groups, wide)))

    assert "Share of each group's own channels" in html
    assert "2048 → 512" in html


def _colours(css, block):
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", css.split(":root {")[block].split("}")[0]))


def _luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [1, 2], ids=["light", "dark"])
def test_colours_have_the_contrast_that_wcag_asks_for(theme):
    colours = _colours(page(), theme)
    pairs = [(ink, paper) for ink in ("ink", "soft", "pruned", "good", "bad") for paper in ("page", "card")]
    pairs += [("ink", "warn-page"), ("ink", "bad-page"), ("original", "page")]

    for one, other in pairs:
        bright, dark = sorted((_luminance(colours[one]), _luminance(colours[other])), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, (one, other)
