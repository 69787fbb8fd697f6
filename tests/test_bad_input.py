"""Wrong images, checkpoints, settings and budgets, through the command line and the real stages.

Each results in one message that says what is wrong and what to do, the right exit code, and no partially written files.
"""

import os

import pytest
import torch
from PIL import Image

from catro_deploy.models.checkpoint import save_weights
from tests.tiny import TinyNet, command


def refused(result, code, *said):
    """Check that the command exited with ``code`` and that stderr contains all of ``said`` and no traceback."""
    assert result.exit_code == code, result.stderr
    for text in said:
        assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert "internal error of catro-deploy" not in result.stderr
    assert result.stdout == ""


def nothing_is_written(folder):
    assert not list(folder.glob("runs/*"))


def truncate(path, size):
    path.write_bytes(path.read_bytes()[:size])


def replace_line(folder, key, line):
    file = folder / "catro.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line if old.startswith(f"{key} =") else old for old in lines) + "\n")


@pytest.mark.parametrize("size", [0, 50, 600])
def test_a_truncated_image_is_named(tiny, size):
    for path in (tiny / "data/train/down").iterdir():
        truncate(path, size)
    refused(command("run"), 2, "The image data/train/down/", "cannot be read", "replace or remove it")
    nothing_is_written(tiny)


def test_an_image_that_went_away_is_named(tiny):
    for path in (tiny / "data/train/even").iterdir():
        path.unlink()
        path.symlink_to("gone.png")
    refused(command("prune"), 2, "The image data/train/even/", "does not exist", "Put it back")
    nothing_is_written(tiny)


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (0, "There are no images in data/train/even."),
        (1, "data/train/even has one image, so none can be held out for validation."),
        (2, "The class even has 1 image for training, those held out for validation not counted"),
    ],
)
def test_a_class_with_too_few_images_is_named(tiny, left, said):
    for path in sorted((tiny / "data/train/even").iterdir())[left:]:
        path.unlink()
    refused(command("prune"), 2, said, "dd ")
    nothing_is_written(tiny)


def test_a_class_with_too_few_images_can_be_left_out(tiny):
    for path in sorted((tiny / "data/train/even").iterdir())[2:]:
        path.unlink()
    assert command("prune", "--classes", "across,down").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data-root", "nowhere"), "There is no train/, val/ or test/ in nowhere."),
        (("--data", "imagefoldr"), "Did you mean imagefolder?"),
        (("--data", "gtsrb"), "GTSRB is not in data."),
        (("--data", "tests.tiny:raising_dataset"), "failed: RuntimeError: the archive is offline"),
        (("--data", "tests.tiny:no_dataset"), "returned a dict."),
        (("--data", "tests.tiny:datset"), "There is no 'datset' in tests.tiny"),
        (("--data", "tests_of_nobody:dataset"), "No module named 'tests_of_nobody'"),
        (("--classes", "acros,down"), "There is no class 'acros'. Did you mean across?"),
        (("--classes", "across"), "needs at least two classes, and there is only: across."),
        (("--classes", "0,3"), "Indices go from 0 to 2."),
        (("--data", "tests.tiny:datset"), "Did you mean tests.tiny:dataset?"),
        (("--model", "tests.tiny:netwrk"), "Did you mean tests.tiny:network?"),
        (("--model", "cifar_resnet21"), "There is no model 'cifar_resnet21'."),
        (("--model", "cifar_resnet21"), "Did you mean cifar_resnet"),
        (("--model", "resnet50"), "Did you mean torchvision:resnet50"),
        (("--model", "mobilenet_v2x"), "Did you mean torchvision:mobilenet_v2"),
        (("--model", "torchvision:resnet5"), "Did you mean resnet50"),
        (("--model", "cifar_resnet20"), "missing: layer1.0.conv1.weight [16, 16, 3, 3]"),
        (("--model", "tests.tiny:raising_network"), "failed: RuntimeError: no weights today"),
        (("--model", "tests.tiny:no_network"), "returned a str."),
        (("--model", "tests.tiny:grey_network"), "conv1.weight is [12, 3, 3, 3] in the file"),
        (("--ignore", "conv9"), "The model has no module 'conv9' to ignore."),
        (("--ignore", "con1"), "Did you mean conv1?"),
        (("--input-size", "17"), "input_size = 17 is larger than the images, which are 16."),
        (("-o", "export.top_k=4"), "export.top_k = 4, but the network has 3 classes.\nChoose at most 3"),
        (("--ignore", "conv1,conv2,conv3"), "may be pruned:\nconv1: conv1 is to be ignored"),
        (("--d-min", "40"), "may be pruned:\nconv1: not wider than d_min = 40"),
        (("--budget", "5%flops"), "which needs 5.59%flops."),
        (("--budget", "5s"), "or 50%flops"),
        (("--budget", "101%flops"), "at most what the original uses"),
        (("--target", "./mine.toml"), "There is no file mine.toml."),
        (("--target", "catro.toml"), "catro.toml is not a target"),
    ],
)
def test_what_cannot_be_done_is_reported_before_anything_is_written(tiny, arguments, said):
    refused(command("prune", *arguments), 2, said)
    nothing_is_written(tiny)


def test_the_budget_that_is_named_as_the_smallest_can_be_met(tiny):
    assert command("prune", "--budget", "5.59%flops").exit_code == 0


def test_a_wrong_protocol_is_found_before_the_pruning(tiny):
    refused(command("run", "--protocol", "catro.toml"), 2, "catro.toml is not valid: warmup_s: Field required.")
    assert not (tiny / "runs").exists()


def weights(change):
    network = TinyNet(3)
    change(network)
    return network


def set_nan(network):
    network.conv2.weight.data[0, 0, 0, 0] = torch.nan


def set_huge(network):
    network.conv2.weight.data[:2] = 3e38


def kill_first(network):
    network.bn1.weight.data[:] = 0
    network.bn1.bias.data[:] = 0


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (set_nan, 2, ("holds NaN or infinity:\nnot finite: conv2.weight", "Its training diverged.")),
        (set_huge, 1, ("The feature maps of conv2 hold NaN or infinity", "Check the checkpoint")),
        (kill_first, 1, ("The channels of conv1 are dead", 'ignore = ["conv1"]')),
    ],
)
def test_weights_that_compute_nothing(tiny, change, code, said):
    save_weights(weights(change), tiny / "tiny.safetensors")
    refused(command("run"), code, *said)
    nothing_is_written(tiny)


def test_some_dead_channels_go_first(tiny):
    def kill_some(network):
        network.bn1.weight.data[:9] = 0
        network.bn1.bias.data[:9] = 0

    save_weights(weights(kill_some), tiny / "tiny.safetensors")
    result = command("prune", "--json", "--d-min", "3")
    assert result.exit_code == 0
    assert '"kept"' in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--model", "tests.tiny:nan_network"), 1, "The feature maps of conv1 hold NaN or infinity"),
        (("--data", "tests.tiny:identical_images"), 1, "that the samples of a class differ"),
    ],
)
def test_feature_maps_that_give_no_ground_to_choose_on(tiny, arguments, code, said):
    refused(command("prune", *arguments), code, said)
    nothing_is_written(tiny)


@pytest.mark.parametrize("kind", ["truncated", "empty", "text", "module", "list", "other classes", "folder"])
def test_a_checkpoint_that_is_none(tiny, kind):
    file = tiny / ("tiny.safetensors" if kind in ("truncated", "empty") else "other.pth")
    said = {
        "truncated": "tiny.safetensors is not a whole safetensors file",
        "empty": "tiny.safetensors is not a whole safetensors file",
        "text": "other.pth is not a torch file of tensors only",
        "module": "Save the weights alone: torch.save(model.state_dict(), path)",
        "list": "other.pth holds a list",
        "other classes": "other.pth is of a network with 4 classes; imagefolder has 3",
        "folder": "There is no checkpoint other.pth",
    }
    match kind:
        case "truncated":
            truncate(file, 3000)
        case "empty":
            truncate(file, 0)
        case "text":
            file.write_text("weights")
        case "module":
            torch.save(TinyNet(3), file)
        case "list":
            torch.save([1, 2], file)
        case "other classes":
            torch.save(TinyNet(4).state_dict(), file)
        case "folder":
            file.mkdir()
    refused(command("run", "--checkpoint", file.name), 2, said[kind])
    nothing_is_written(tiny)


@pytest.mark.parametrize("flags", [("--take", "2"), ("--search-budgets", "0.3x")])
def test_flags_of_a_search_need_one(tiny, flags):
    refused(command("run", *flags), 2, "none is requested", "Add --search")
    nothing_is_written(tiny)


def test_a_factory_that_ignores_the_number_of_classes(tiny):
    torch.save(TinyNet(4).state_dict(), "other.pth")
    arguments = ("--model", "tests.tiny:four_classes", "--checkpoint", "other.pth")
    refused(command("run", *arguments), 2, "other.pth is of a network with 4 classes; imagefolder has 3")
    nothing_is_written(tiny)


def test_a_network_that_cannot_be_trained_is_not_pruned_unless_nothing_is_trained(tiny):
    arguments = ("--model", "tests.tiny:auxiliary_network")
    refused(command("run", *arguments, "--epochs", "1"), 2, "in training mode, its forward returns a tuple")
    nothing_is_written(tiny)
    assert command("prune", *arguments, "-o", "finetune.epochs=0").exit_code == 0


@pytest.mark.parametrize(
    ("key", "line", "code", "said"),
    [
        ("mean", "mean = [0.5, 0.5]", 2, "model: mean and std need three values each, or one each for grey images."),
        ("std", "std = [0.5]", 2, "model: mean and std need three values each, or one each for grey images."),
        ("std", "std = [0.5, 0.0, 0.5]", 2, "model.std = 0.0 does not fit"),
        ("mean", "mean = [inf, 0.5, 0.5]", 2, "model.mean = inf does not fit: Input should be a finite number."),
        (
            "std",
            "std = [1e-44, 1e-44, 1e-44]",
            2,
            "model.std = 1e-44 does not fit: Input should be greater",
        ),
        ("epochs", "epocs = 3", 2, "finetune.epocs is not a setting. Did you mean epochs?"),
        ("budget", "budget = 0.5x", 2, '    budget = 0.5x\nDid you mean: budget = "0.5x"'),
        ("budget", "budget = 0.5", 2, "The budget '0.5' cannot be read."),
        ("epochs", "epochs = ", 2, "catro.toml cannot be read: Invalid value (at line"),
        ("epochs", "epochs = -1", 2, "finetune.epochs = -1 does not fit"),
        ("compute", "activation_memory = 1e308", 2, "activation_memory = 1e+308 does not fit"),
    ],
)
def test_wrong_lines_of_catro_toml(tiny, key, line, code, said):
    replace_line(tiny, key, line)
    refused(command("run"), code, said)
    nothing_is_written(tiny)


def test_more_threads_than_a_machine_has_are_refused_before_any_work(tiny):
    refused(command("run", "--threads", "100000"), 2, "bench.threads = 100000 does not fit")
    nothing_is_written(tiny)


def test_a_checkpoint_whose_keys_are_numbers(tiny):
    torch.save({0: torch.zeros(3), 1: torch.ones(3)}, tiny / "numbers.pth")
    refused(command("run", "--checkpoint", "numbers.pth"), 2, "not a mapping of names to tensors")
    nothing_is_written(tiny)


def test_a_settings_file_that_is_no_text(tiny):
    (tiny / "catro.toml").write_bytes(b"\xff\xfe\x00")
    refused(command("run"), 2, "catro.toml cannot be read", "Correct it")


def test_a_wrong_name_in_a_group(tiny):
    replace_line(tiny, "size", 'size = 16\ngroups = {mine = ["acros", "down"]}')
    refused(command("prune", "--classes", "mine"), 2, "In the group mine: There is no class 'acros'. Did you mean")


def grey(folder):
    replace_line(folder, "mean", "mean = [0.5]")
    replace_line(folder, "std", "std = [0.25]")


def test_grey_images_for_a_network_of_three_colours(tiny):
    grey(tiny)
    refused(command("prune"), 2, "The model fails on an image of shape (1, 16, 16)", "one value for each colour")


def test_grey_images_for_a_grey_network(tiny):
    grey(tiny)
    save_weights(TinyNet(3, channels=1), tiny / "tiny.safetensors")
    result = command("prune", "--model", "tests.tiny:grey_network")
    assert result.exit_code == 0, result.stderr


def test_images_of_every_kind_are_read(tiny):
    """Greyscale, palette, transparent and 16-bit files of other sizes among the usual ones."""
    folder = tiny / "data/train/even"
    for number, mode in enumerate(("L", "P", "RGBA", "I;16", "1", "CMYK")):
        suffix = "tif" if mode == "CMYK" else "png"
        Image.new(mode, (20 + number, 11)).save(folder / f"new{number}.{suffix}")
    assert command("prune", "--samples-per-class", "100").exit_code == 0


def test_the_training_that_diverges_keeps_what_was_pruned(tiny):
    refused(command("run", "--learning-rate", "1e20"), 1, "Training diverged", "Lower learning_rate")
    (run,) = (tiny / "runs").iterdir()
    assert (run / "pruned.safetensors").is_file()
    assert not (run / "weights.safetensors").exists()
    again = command("finetune", "--learning-rate", "0.01")
    assert again.exit_code == 0, again.stderr


def test_a_test_image_that_breaks_costs_verification_only(tiny, tiny_run):
    """Fine-tuning is not run again once the image is repaired."""
    broken = tiny / "data/test/down/03.png"
    whole = broken.read_bytes()
    truncate(broken, 100)
    arguments = ("verify", "--run", "run", "--data-root", "data")
    refused(command(*arguments), 2, "The image data/test/down/03.png cannot be read")
    broken.write_bytes(whole)
    again = command(*arguments)
    assert again.exit_code == 0, again.stderr


DEEP = "a = " + "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize(
    "content", [DEEP, "a = 1\0", "no TOML", "x" * 2**24 + "x"], ids=["deep", "nul", "text", "long"]
)
@pytest.mark.parametrize("name", ["catro.toml", "runs/one/run.toml"])
def test_settings_that_are_no_toml_are_named(tiny, name, content):
    (tiny / name).parent.mkdir(parents=True, exist_ok=True)
    (tiny / name).write_text(content)
    refused(command("prune", *(() if name == "catro.toml" else ("--run", "runs/one"))), 2, name.split("/")[-1])


def test_a_pipe_in_the_place_of_settings_is_not_waited_for(tiny):
    os.mkfifo(tiny / "pipe.toml")
    refused(command("prune", "--config", "pipe.toml"), 2, "pipe.toml", "not a regular file")
    refused(command("prune", "--config", "/dev/zero"), 2, "/dev/zero", "not a regular file")


def test_a_path_that_cannot_be_one_is_named(tiny):
    refused(command("prune", "--run", "x" * 300), 2, "x" * 300, "too long")
    refused(command("prune", "--run", "catro.toml/run"), 2, "catro.toml")


@pytest.mark.parametrize("flag", ["--run", "--data-root", "--checkpoint"])
def test_a_path_that_is_not_utf8_is_rejected_at_the_start(tiny, flag):
    refused(command("prune", flag, os.fsdecode(b"caf\xe9")), 2, r"caf\xe9 is not valid UTF-8")
    nothing_is_written(tiny)
