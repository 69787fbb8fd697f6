import json

import pytest

from catro_deploy.errors import RunFolderError
from catro_deploy.progress import Silent
from catro_deploy.records.files import content_of
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import save_plan
from catro_deploy.runs.records import save
from catro_deploy.settings import Settings
from catro_deploy.stages.report import report
from tests.report.made import make_bench, make_estimate, make_finetune, make_plan, make_verify


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path / "tram")
    save_plan(make_plan(), folder.plan)
    for record in (make_verify(), make_bench(), make_finetune()):
        save(record, folder)
    return folder


def test_report_writes_three_files_that_agree(run):
    content = report(Settings(), run, Silent())

    assert json.loads(run.report("json").read_text(encoding="utf-8")) == content_of(content)
    assert content.name == "tram"
    assert content.verdict in run.report("md").read_text(encoding="utf-8").replace("\\", "")
    assert "1.84x faster" in run.report("html").read_text(encoding="utf-8")


def test_report_does_without_fine_tuning(run):
    run.finetune.unlink()

    assert report(Settings(), run, Silent()).finetune is None


@pytest.mark.parametrize("stage", ["plan", "verify", "bench"])
def test_a_missing_record_names_the_stage_that_makes_it(run, stage):
    getattr(run, stage).unlink()

    with pytest.raises(RunFolderError) as caught:
        report(Settings(), run, Silent())

    assert f"catro-deploy {'prune' if stage == 'plan' else stage}" in caught.value.hint
    assert not run.report("json").exists()


def test_a_target_out_of_reach_needs_no_measurements(run):
    save_plan(make_estimate(), run.plan)
    run.verify.unlink()
    run.bench.unlink()

    content = report(Settings(), run, Silent())

    assert content.speedup is None
    assert "not measured on jetson-orin: estimate 0.480x" in run.report("html").read_text(encoding="utf-8")


def test_measurements_of_another_target_are_not_taken_for_those_of_one_out_of_reach(run):
    save_plan(make_estimate(), run.plan)

    assert report(Settings(), run, Silent()).speedup is None


def test_a_broken_record_leaves_the_old_report(run):
    report(Settings(), run, Silent())
    before = run.report("html").read_bytes()
    run.bench.write_text('{"original": ', encoding="utf-8")

    with pytest.raises(RunFolderError):
        report(Settings(), run, Silent())

    assert run.report("html").read_bytes() == before
