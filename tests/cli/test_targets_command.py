from tests.cli.conftest import document


def test_the_list_holds_the_cpu(catro):
    assert "x86-cpu" in catro("targets", "list").stdout
    assert "x86-cpu" in [target["name"] for target in document(catro("targets", "list", "--json"))]


def test_show_tells_where_figures_come_from(catro):
    content = document(catro("targets", "show", "x86-cpu", "--json"))
    shown = catro("targets", "show", "x86-cpu").stdout
    assert content["runtime"] == "onnxruntime"
    assert all(source[:40] in shown for source in content["sources"].values())
